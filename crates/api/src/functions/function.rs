//! Deployed functions, and the code packages and wheels that they are made from.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use snowmelt_types::{ByteSize, CpuMillis, FunctionName, Tenant};
use snowmelt_wire::SourceCode;
use utoipa::ToSchema;

use crate::{FileRef, FileRefs};

/// How long the result of an asynchronous call is kept by default, in milliseconds.
pub const RESULT_KEPT_MS: u64 = 24 * 60 * 60 * 1000;

/// A function to deploy.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FunctionSpec {
    /// The name of the function. Deploying a name again replaces the function.
    pub name: FunctionName,
    /// The code; without files where `packed` names a code package.
    #[serde(default = "no_code")]
    pub code: SourceCode,
    /// The name of a code package with a Python function, instead of code and packages: one of the
    /// platform's machine, or one in a registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packed: Option<String>,
    /// The callable in the code. Empty: `handler`, and for Java the class `Handler` or the class of
    /// a single source file.
    #[serde(default)]
    pub handler: String,
    /// The runtime that loads the code and calls it.
    #[serde(default)]
    pub runtime: Runtime,
    /// For [`Runtime::Command`] the program and its arguments: a name, an absolute path, or `./`
    /// and a file of the code. Empty with an image: the command that the image names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The unpacked file system of an image on the platform's machine, as an absolute path. Absent:
    /// the programs of the machine itself. Python code runs by the interpreter of that file system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub root: Option<PathBuf>,
    /// The name of a block image, instead of a root: one of the platform's machine, or one in a
    /// registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The form of a call: a JSON event, or a pickled list of items.
    #[serde(default)]
    pub mode: CallMode,
    /// Requirements of the function, as pip writes them.
    #[serde(default)]
    pub packages: Vec<String>,
    /// Files that were sent before, by the names that the function uses.
    #[serde(default, skip_serializing_if = "FileRefs::is_empty")]
    #[schema(value_type = BTreeMap<String, FileRef>)]
    pub files: FileRefs,
    /// Secrets by the names that the code uses, as references: `env:VARIABLE` or `file:NAME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// Limits and environment of the function's instances.
    #[serde(default)]
    pub options: FunctionOptions,
    /// The tenant, which only clients of older versions send here. Another one than the tenant of
    /// the request is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Tenant>,
    /// The number of instances to start at the deployment, for a burst of calls that follows.
    #[serde(default)]
    pub expected: u32,
    /// True for a function that dies with the server and is not listed (`sm.map`).
    #[serde(default)]
    pub ephemeral: bool,
}

/// Returns code without files, for a function whose code is elsewhere (in a code package or image).
pub fn no_code() -> SourceCode {
    SourceCode::Files { files: BTreeMap::new() }
}

/// The runtime of a function's code. Python takes [`SourceCode::Source`] and
/// [`SourceCode::Pickle`], the others take [`SourceCode::Files`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Runtime {
    /// The platform's Python, or the Python of the function's image.
    #[default]
    Python,
    /// Node.js with `handler.mjs`.
    Node,
    /// Java with a class that has a method `handle`.
    Java,
    /// A program that was made with the Go package of `runtimes/go`.
    Go,
    /// Any program that speaks the dialogue of `docs/reference/runtimes.md`.
    Command,
}

/// The form of a function's calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CallMode {
    /// A JSON event, the argument of the function.
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
    /// Memory limit of an instance, in bytes.
    pub memory: ByteSize,
    /// Processor share of an instance, in thousandths of a core.
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
    /// The most processes and threads of an instance.
    pub pids: u32,
    /// Bytes of an instance's writable scratch.
    pub scratch: ByteSize,
    /// Folders of the image in which a program may write. They are copied, and the copies count to
    /// the scratch.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub writable: Vec<PathBuf>,
    /// The most open descriptors of one process.
    pub open_files: u64,
    /// Bytes of output, to stdout and stderr, that are kept of one invocation.
    pub log: ByteSize,
    /// How long an instance without work is kept, in milliseconds; 0: it is not kept.
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
    /// The name of the function.
    pub name: FunctionName,
    /// The callable in the code.
    pub handler: String,
    /// The runtime that loads the code and calls it.
    #[serde(default)]
    pub runtime: Runtime,
    /// The program and its arguments, where the user named one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The folder of the function's unpacked image; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub root: Option<PathBuf>,
    /// The name of the function's block image; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The name of the function's code package; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packed: Option<String>,
    /// The tenant that deployed the function.
    #[serde(default)]
    pub tenant: Tenant,
    /// Requirements of the function, as pip writes them.
    pub packages: Vec<String>,
    /// Secrets of the function by the names that the code uses, as references.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// Limits and environment of the function's instances.
    pub options: FunctionOptions,
    /// When the function was deployed, in milliseconds since 1970.
    pub deployed_ms: u64,
    /// The number of the function's instances that are alive now.
    pub instances: u32,
    /// The beginning of the digest of the code, which identifies the version.
    pub version: String,
}

/// Python code to make a code package of.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PackRequest {
    /// The package's name. A package whose name has a registry in it is sent there.
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
    /// The name of the package in full, with the parts that the request left out.
    pub name: String,
    /// The digest of the package's manifest.
    pub manifest: String,
    /// Name and version of each wheel in the package.
    pub wheels: Vec<String>,
    /// The number of layers of the package, with the layer of the code.
    pub layers: u64,
    /// The number of layers that were on this machine already.
    pub reused: u64,
    /// Compressed bytes of the package, as they are stored.
    pub bytes: u64,
    /// Uncompressed bytes of the package.
    pub raw_bytes: u64,
    /// Whether the package was sent to a registry.
    pub sent: bool,
}

/// A wheel of the user's own that was sent to the platform.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Wheel {
    /// The requirement that names the wheel among others, by its content.
    pub requirement: String,
}
