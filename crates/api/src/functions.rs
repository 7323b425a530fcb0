//! Deployed functions, and the code packages and wheels that they are made from.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use snowmelt_types::{ByteSize, CpuMillis, FunctionName, Tenant};
use snowmelt_wire::SourceCode;
use utoipa::ToSchema;

use crate::FileRefs;

/// How long the result of an asynchronous call is kept by default, in milliseconds.
pub const RESULT_KEPT_MS: u64 = 24 * 60 * 60 * 1000;

/// A function to deploy.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FunctionSpec {
    /// Its name; deploying a name again replaces the function.
    pub name: FunctionName,
    /// The code; of a code package none.
    #[serde(default = "no_code")]
    pub code: SourceCode,
    /// The code package of a Python function, instead of code and packages: of the platform's
    /// machine, or in a registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packed: Option<String>,
    /// The callable in the code; empty: `handler`, and for Java the class `Handler` or that of a
    /// single source file.
    #[serde(default)]
    pub handler: String,
    /// What runs the code.
    #[serde(default)]
    pub runtime: Runtime,
    /// For [`Runtime::Command`] the program and its arguments: a name, an absolute path, or `./`
    /// and a file of the code. Empty with an image: what that runs by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The unpacked file system of an image on the platform's machine, as an absolute path; absent:
    /// the programs of the machine itself. Python code runs by the interpreter that is in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub root: Option<PathBuf>,
    /// Instead of a root, a block image by its name: of the platform's machine, or in a registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// JSON event or pickled list of items.
    #[serde(default)]
    pub mode: CallMode,
    /// Requirements as pip writes them.
    #[serde(default)]
    pub packages: Vec<String>,
    /// Files that were sent before, by the names that the function uses.
    #[serde(default, skip_serializing_if = "FileRefs::is_empty")]
    pub files: FileRefs,
    /// Secrets by the names that the code uses, as references: `env:VARIABLE` or `file:NAME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// Limits and environment.
    #[serde(default)]
    pub options: FunctionOptions,
    /// Sent by clients of older versions only. Refused unless it is the tenant of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Tenant>,
    /// Instances to start at its deployment, for a burst of calls that follows.
    #[serde(default)]
    pub expected: u32,
    /// True for a function that dies with the server and is not listed (`sm.map`).
    #[serde(default)]
    pub ephemeral: bool,
}

/// What stands for the code of a function that has it elsewhere.
pub fn no_code() -> SourceCode {
    SourceCode::Files { files: BTreeMap::new() }
}

/// What runs a function's code. Python takes [`SourceCode::Source`] and [`SourceCode::Pickle`], the
/// others take [`SourceCode::Files`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Runtime {
    /// The platform's Python, or that of an image.
    #[default]
    Python,
    /// Node.js with `handler.mjs`.
    Node,
    /// Java with a class that has a method `handle`.
    Java,
    /// A program that was made with the Go package of `runtimes/go`.
    Go,
    /// Any program that speaks the dialogue of `docs/runtimes.md`.
    Command,
}

/// What a function takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CallMode {
    /// One JSON event.
    #[default]
    Event,
    /// `{"items": base64 pickle of a list, "results": "plain" or "pickle"}`; answers `{"results":
    /// text, "failed": the first exception, if any}`. The text holds (true, value) or (false, why)
    /// for each item in order: as JSON of plain data, or as a base64 pickle.
    Map,
}

/// Limits and environment of a function's instances.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FunctionOptions {
    /// Memory limit.
    pub memory: ByteSize,
    /// Processor share.
    pub cpu: CpuMillis,
    /// The most time for one invocation, in milliseconds.
    pub timeout_ms: u64,
    /// Environment variables.
    pub environment: BTreeMap<String, String>,
    /// The most instances at once; further invocations wait.
    pub instances: u32,
    /// Invocations that an instance takes at once; more than 1 for code that is safe for threads.
    pub concurrency: u32,
    /// Instances to keep prewarmed: started, loaded and paused.
    // Records of earlier versions have the other name.
    #[serde(alias = "parked")]
    pub prewarmed: u32,
    /// Processes and threads of an instance.
    pub pids: u32,
    /// Bytes of its writable scratch.
    pub scratch: ByteSize,
    /// Folders of its image in which a program may write: copies that count to the scratch.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub writable: Vec<PathBuf>,
    /// Open descriptors of one process.
    pub open_files: u64,
    /// Bytes of its output that are kept of one invocation.
    pub log: ByteSize,
    /// How long an instance without work is kept, in milliseconds.
    pub idle_ms: u64,
    /// How long the answer of an asynchronous call is kept, in milliseconds.
    pub keep_ms: u64,
}

impl Default for FunctionOptions {
    fn default() -> Self {
        Self {
            memory: ByteSize::mib(512),
            cpu: CpuMillis(1000),
            timeout_ms: 60_000,
            environment: BTreeMap::new(),
            instances: 10,
            concurrency: 1,
            prewarmed: 0,
            pids: 64,
            scratch: ByteSize::mib(64),
            writable: Vec::new(),
            open_files: 1024,
            log: ByteSize::mib(1),
            idle_ms: 60_000,
            keep_ms: RESULT_KEPT_MS,
        }
    }
}

/// A deployed function in a list.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FunctionSummary {
    /// Its name.
    pub name: FunctionName,
    /// The callable.
    pub handler: String,
    /// What runs it.
    #[serde(default)]
    pub runtime: Runtime,
    /// The program and its arguments, where the user named one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The folder of its image, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub root: Option<PathBuf>,
    /// Its block image, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Its code package, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packed: Option<String>,
    /// Whose code it is.
    #[serde(default)]
    pub tenant: Tenant,
    /// Requirements.
    pub packages: Vec<String>,
    /// References to its secrets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// Limits and environment.
    pub options: FunctionOptions,
    /// When it was deployed, in milliseconds since 1970.
    pub deployed_ms: u64,
    /// Instances alive now.
    pub instances: u32,
    /// Digest of the code, shortened.
    pub version: String,
}

/// Python code to make a code package of.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PackRequest {
    /// The package's name; with a registry in it, it is sent there.
    pub name: String,
    /// The code.
    pub code: SourceCode,
    /// The callable in the code; empty: `handler`.
    #[serde(default)]
    pub handler: String,
    /// Requirements beside those that the code names, as pip writes them.
    #[serde(default)]
    pub packages: Vec<String>,
}

/// A code package that was made.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Packed {
    /// Its name with everything that was left out.
    pub name: String,
    /// Digest of its manifest.
    pub manifest: String,
    /// Name and version of each wheel in it.
    pub wheels: Vec<String>,
    /// How many layers it has, that of the code included.
    pub layers: u64,
    /// Layers that were on this machine already.
    pub reused: u64,
    /// Stored bytes.
    pub bytes: u64,
    /// Uncompressed bytes.
    pub raw_bytes: u64,
    /// Whether it was sent to a registry.
    pub sent: bool,
}

/// A wheel of a user's own that was sent.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Wheel {
    /// Names it among other requirements, by its content.
    pub requirement: String,
}
