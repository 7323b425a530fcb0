//! The platform's API as data: what the command line and the Python package send and get over
//! HTTP on a unix socket. Pure shapes, no behaviour.
//!
//! | request | body | answer |
//! |---|---|---|
//! | `GET /v1/status` | | [`Status`] |
//! | `POST /v1/queries` | [`QueryRequest`] | frames: `Event`*, (`Schema` `Batch`* `Profile` `End` or `Failure`) |
//! | `POST /v1/functions` | [`FunctionSpec`] | [`FunctionSummary`] |
//! | `POST /v1/packages` | [`PackRequest`] | [`Packed`]: a code package of the platform's machine |
//! | `POST /v1/wheels/{file name}` | the wheel itself | [`Wheel`] |
//! | `GET /v1/functions` | | list of [`FunctionSummary`] |
//! | `GET /v1/functions/{name}` | | [`FunctionSummary`] |
//! | `DELETE /v1/functions/{name}` | | 204 |
//! | `POST /v1/functions/{name}/invocations` | [`InvokeRequest`] | [`Invocation`] (202 if asynchronous), or [`FailedCall`] |
//! | `POST /v1/functions/{name}/batches` | [`BatchRequest`] | list of [`Invocation`], in order |
//! | `GET /v1/invocations/{id}` | | [`Invocation`] |
//! | `GET /v1/functions/{name}/logs?invocation=&tail=` | | list of [`LogEntry`] |
//! | `POST /v1/bursts` | [`BurstRequest`] | [`BurstAnswer`] |
//! | `POST /v1/functions/{name}/bursts` | [`BurstCalls`] | [`BurstAnswer`] |
//! | `GET /v1/hosts` | | list of [`HostSummary`] |
//! | `GET /v1/networks` | | list of [`NetworkSummary`]: jobs with a network now |
//! | `GET /v1/networks/{job}` | | [`NetworkDetail`] |
//! | `POST /v1/networks/{job}/trace` | [`TraceRequest`] | [`Trace`] |
//! | `GET /v1/figures` | | [`Figures`] |
//! | `GET /metrics` | | the same for Prometheus, as text |
//! | `POST /v1/shutdown` | [`ShutdownRequest`], or nothing | 202 |
//!
//! Errors are `ErrorReport` objects with a 4xx or 5xx status, as problem+json (RFC 9457).
//! A client that closes the connection cancels its query or burst.
//!
//! At the address for hosts, with the token of the cluster:
//!
//! | request | body | answer |
//! |---|---|---|
//! | `POST /v1/hosts` | [`HostJoin`] | 204; a host says it again each second |
//! | `DELETE /v1/hosts/{name}` | | 204 |

mod networks;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use snowmelt_network::{Counters, Egress};
use snowmelt_node::agent::api::HostFacts;
use snowmelt_node::{InstanceLimits, NodeFigures, SpawnerHealth};
use snowmelt_types::{
    ByteSize, CpuMillis, ErrorReport, FunctionName, HostName, InvocationId, JobId, QueryId, Tenant,
};
use snowmelt_wire::{Code, Signature};

use crate::store::KEPT_WITHOUT_A_WORD_MS;

pub use snowmelt_node::{Answer, Packed};

pub use networks::{
    NetworkDetail, NetworkPart, NetworkSummary, Trace, TracePoint, TraceRequest, TraceStep, TraceTo,
};

/// The longest request: code and events by value, never data.
pub const MOST_REQUEST_BYTES: usize = 256 << 20;

/// A query with everything that it needs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueryRequest {
    /// One SELECT statement.
    pub sql: String,
    /// Table name to location: a file, a folder, a glob or an `s3://` URL of Parquet files.
    #[serde(default)]
    pub tables: BTreeMap<String, String>,
    /// The user's functions.
    #[serde(default)]
    pub udfs: Vec<UdfSource>,
    /// Whose functions they are: nothing that their code did is shared with another tenant's.
    #[serde(default)]
    pub tenant: Tenant,
    /// How to run it.
    #[serde(default)]
    pub options: QueryOptions,
    /// Folder against which relative locations are read (the client's own working folder).
    pub working_folder: String,
    /// The client's `AWS_*` variables, for `s3://` locations.
    #[serde(default)]
    pub aws: BTreeMap<String, String>,
}

/// Code that defines UDFs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UdfSource {
    /// The code.
    pub code: Code,
    /// Requirements beside those that the code's decorators name.
    #[serde(default)]
    pub packages: Vec<String>,
    /// Its signatures; where absent the code is loaded in a sandbox and asked.
    #[serde(default)]
    pub signatures: Option<Vec<Signature>>,
    /// A block image to run in, by its interpreter and with its packages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// How to run a query.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueryOptions {
    /// Workers; 0 means one for each core.
    pub workers: u32,
    /// Memory limit of each worker.
    pub memory: ByteSize,
    /// The most time for the whole query, in milliseconds; 0 means no limit.
    pub timeout_ms: u64,
}

impl Default for QueryOptions {
    fn default() -> Self {
        Self { workers: 0, memory: ByteSize::mib(1024), timeout_ms: 0 }
    }
}

/// What happens in a query, for its progress display.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The query was accepted.
    Accepted {
        /// Its id.
        query: QueryId,
    },
    /// A phase began.
    Phase {
        /// Which.
        phase: Phase,
    },
    /// How far the workers are.
    Progress(Progress),
    /// Something that the user should know and that is no failure (a task was run again).
    Note {
        /// One line.
        text: String,
    },
}

/// The phases of a query, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Resolving and unpacking packages, asking the code for its signatures.
    Packages,
    /// Reading statistics, planning and cutting.
    Plan,
    /// Starting workers and UDF instances.
    Start,
    /// Workers run.
    Run,
    /// The driver merges.
    Merge,
}

/// How far the workers are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Tasks in all.
    pub tasks: u32,
    /// Tasks that run now.
    pub running: u32,
    /// Tasks that are done.
    pub done: u32,
    /// Workers and UDF instances that were started for this query.
    pub cold: u32,
    /// Workers and UDF instances that were idle and taken again.
    pub warm: u32,
    /// Rows read.
    pub rows: u64,
    /// Bytes read from storage.
    pub bytes: u64,
    /// Bytes of all files of the scans: an upper bound of `bytes`.
    pub bytes_total: u64,
    /// Rows given to UDFs.
    pub udf_rows: u64,
}

/// A function to deploy.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionSpec {
    /// Its name; deploying a name again replaces the function.
    pub name: FunctionName,
    /// The code; of a code package none.
    #[serde(default = "no_code")]
    pub code: Code,
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
    /// Limits and environment.
    #[serde(default)]
    pub options: FunctionOptions,
    /// Whose code it is: nothing that its code did is shared with another tenant's.
    #[serde(default)]
    pub tenant: Tenant,
    /// Instances to start at its deployment, for a burst of calls that follows.
    #[serde(default)]
    pub expected: u32,
    /// True for a function that dies with the server and is not listed (`sm.map`).
    #[serde(default)]
    pub ephemeral: bool,
}

/// What stands for the code of a function that has it elsewhere.
pub fn no_code() -> Code {
    Code::Files { files: BTreeMap::new() }
}

/// Python code to make a code package of.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackRequest {
    /// The package's name; with a registry in it, it is sent there.
    pub name: String,
    /// The code.
    pub code: Code,
    /// The callable in the code; empty: `handler`.
    #[serde(default)]
    pub handler: String,
    /// Requirements beside those that the code names, as pip writes them.
    #[serde(default)]
    pub packages: Vec<String>,
}

/// A wheel of a user's own that was sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Wheel {
    /// Names it among other requirements, by its content.
    pub requirement: String,
}

/// What runs a function's code. Python takes [`Code::Source`] and [`Code::Pickle`], the others take
/// [`Code::Files`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Instances that are started ahead of the calls that need them.
    pub parked: u32,
    /// Processes and threads of an instance.
    pub pids: u32,
    /// Bytes of its writable scratch.
    pub scratch: ByteSize,
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
            parked: 0,
            pids: 64,
            scratch: ByteSize::mib(64),
            open_files: 1024,
            log: ByteSize::mib(1),
            idle_ms: 60_000,
            keep_ms: KEPT_WITHOUT_A_WORD_MS,
        }
    }
}

/// The most calls that one instance takes at once.
const MOST_EACH: u32 = 1000;

impl From<&FunctionOptions> for InstanceLimits {
    fn from(options: &FunctionOptions) -> Self {
        Self {
            memory: options.memory,
            cpu: options.cpu,
            pids: options.pids,
            scratch: options.scratch,
            open_files: options.open_files,
            log: options.log,
            environment: options.environment.clone(),
            idle: Duration::from_millis(options.idle_ms),
            concurrency: options.concurrency.clamp(1, MOST_EACH),
        }
    }
}

/// A deployed function in a list.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    /// Limits and environment.
    pub options: FunctionOptions,
    /// When it was deployed, in milliseconds since 1970.
    pub deployed_ms: u64,
    /// Instances alive now.
    pub instances: u32,
    /// Digest of the code, shortened.
    pub version: String,
}

/// A call of a function.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InvokeRequest {
    /// The event.
    pub event: Box<RawValue>,
    /// True to get an id at once and ask for the answer later.
    #[serde(default)]
    pub asynchronous: bool,
}

/// A call that failed, as the problem that its caller is told.
#[derive(Clone, Debug, Serialize)]
pub struct FailedCall {
    /// What it failed with.
    #[serde(flatten)]
    pub report: ErrorReport,
    /// The rest of what is known of it.
    pub invocation: Invocation,
}

/// How the server is to end.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShutdownRequest {
    /// How long what runs may go on, in milliseconds; absent: the usual time.
    #[serde(default)]
    pub grace_ms: Option<u64>,
}

/// Calls of a function, all at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchRequest {
    /// The events.
    pub events: Vec<Box<RawValue>>,
}

/// A call with what is known of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Invocation {
    /// Its id.
    pub id: InvocationId,
    /// The function.
    pub function: FunctionName,
    /// Where it stands.
    pub state: InvocationState,
    /// The answer, once it succeeded.
    #[serde(default)]
    pub result: Option<Answer>,
    /// The error, once it failed.
    #[serde(default)]
    pub error: Option<ErrorReport>,
    /// What the user should know although it is no failure (its log was cut).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<ErrorReport>,
    /// When it was accepted, in milliseconds since 1970.
    pub accepted_ms: u64,
    /// From its acceptance to its end, in microseconds.
    #[serde(default)]
    pub wall_us: Option<u64>,
    /// True if an instance was started for it.
    #[serde(default)]
    pub cold: bool,
    /// Why one had to be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_because: Option<ColdReason>,
}

/// Why no instance was there for a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColdReason {
    /// Which reason.
    pub kind: ColdKind,
    /// In words, with the limit behind it.
    pub text: String,
    /// The setting that would have kept one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The reasons for a cold start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ColdKind {
    /// There was none since the function was deployed or the platform started.
    First,
    /// All that there are had calls.
    Busy,
    /// It was ended because its idle time was over.
    IdleTime,
    /// It was ended because the memory of idle instances was used up.
    Room,
    /// It ended with the call before.
    Ended,
}

/// Where an invocation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InvocationState {
    /// It waits or runs.
    Running,
    /// It has a result.
    Succeeded,
    /// It has an error.
    Failed,
}

/// A function to be run once for each event, all at once, over all hosts.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BurstRequest {
    /// The function; it is not deployed.
    pub function: FunctionSpec,
    /// One event for each rank.
    pub events: Vec<Box<RawValue>>,
    /// How long all of it may take to start, in milliseconds; then none of it runs.
    #[serde(default = "burst_starts_within")]
    pub start_within_ms: u64,
    /// A network of the job's own, by which its functions talk; absent: they do not.
    #[serde(default)]
    pub network: Option<NetworkRequest>,
    /// The most hosts to run it on; absent: all.
    #[serde(default)]
    pub most_hosts: Option<u32>,
}

/// A deployed function to be run once for each event, all at once, over all hosts. How many
/// instances it may have for single calls does not matter here.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BurstCalls {
    /// One event for each rank.
    pub events: Vec<Box<RawValue>>,
    /// How long all of it may take to start, in milliseconds; then none of it runs.
    #[serde(default = "burst_starts_within")]
    pub start_within_ms: u64,
    /// A network of the job's own, by which its functions talk; absent: they do not.
    #[serde(default)]
    pub network: Option<NetworkRequest>,
    /// The most hosts to run it on; absent: all.
    #[serde(default)]
    pub most_hosts: Option<u32>,
}

/// The network of a burst.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkRequest {
    /// What functions may reach outside the job; nothing by default.
    #[serde(default)]
    pub egress: Egress,
}

fn burst_starts_within() -> u64 {
    60_000
}

/// What became of a burst.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BurstAnswer {
    /// Its id.
    pub job: JobId,
    /// One for each event, in order.
    pub invocations: Vec<Invocation>,
    /// What they wrote; those that wrote nothing are left out.
    pub logs: Vec<LogEntry>,
    /// Where they ran.
    pub hosts: Vec<BurstPart>,
    /// From the request until every instance had loaded its code, in microseconds.
    pub started_us: u64,
    /// From the request to the last end, in microseconds.
    pub wall_us: u64,
}

/// What one host ran of a burst.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BurstPart {
    /// The host.
    pub host: HostName,
    /// Its first rank.
    pub first: u32,
    /// How many.
    pub count: u32,
    /// What its network took, in microseconds; 0 without one.
    pub network_us: u64,
    /// What was asked of the kernel for its network.
    pub network: Counters,
    /// Until its instances were started, in microseconds.
    pub started_us: u64,
    /// From then until all hosts had answered over the network, in microseconds.
    pub reached_us: u64,
    /// From then until they had loaded their code, in microseconds.
    pub loaded_us: u64,
}

/// A host that is there.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostJoin {
    /// Its name, unique in the cluster.
    pub name: HostName,
    /// Where its agent listens.
    pub address: Option<SocketAddr>,
    /// What it has and does.
    pub facts: HostFacts,
}

/// A host in a list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostSummary {
    /// Its name.
    pub name: HostName,
    /// Where its agent listens; absent for the host of control.
    pub address: Option<SocketAddr>,
    /// What it has and does.
    pub facts: HostFacts,
    /// Since it was heard of last, in milliseconds.
    pub heard_ms: u64,
}

/// What one invocation wrote to stdout and stderr.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LogEntry {
    /// The invocation.
    pub invocation: InvocationId,
    /// When it was accepted, in milliseconds since 1970.
    pub accepted_ms: u64,
    /// Why an instance was started for it, if one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_because: Option<String>,
    /// What it wrote, as much as is kept.
    pub text: String,
    /// Bytes beyond that, which were dropped.
    pub dropped_bytes: u64,
}

/// A running platform.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Version of the binary.
    pub version: String,
    /// Process id of the server.
    pub pid: u32,
    /// When it started, in milliseconds since 1970.
    pub started_ms: u64,
    /// The socket that it serves.
    pub socket: String,
    /// Resident memory of server and spawner, in bytes.
    pub memory_bytes: u64,
    /// Queries that run now.
    pub queries: u32,
    /// Query workers alive: busy and idle.
    pub workers: [u32; 2],
    /// Instances of functions and UDFs alive: busy and idle.
    pub instances: [u32; 2],
    /// Zygotes alive.
    pub zygotes: u32,
    /// Functions deployed.
    pub functions: u32,
    /// The process that makes sandboxes; without it nothing runs.
    pub spawner: SpawnerHealth,
}

/// What a platform counts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Queries that run now.
    pub queries: u32,
    /// Calls of functions that ended, by how.
    pub calls: CallFigures,
    /// Resident memory of server and spawner, in bytes.
    pub memory_bytes: u64,
    /// Instances, workers and caches.
    pub node: NodeFigures,
}

/// Calls of functions since the platform started.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct CallFigures {
    /// Under way.
    pub running: u64,
    /// Ended with a result.
    pub succeeded: u64,
    /// Ended with an error.
    pub failed: u64,
}
