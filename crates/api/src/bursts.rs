//! Bursts: a function run once for each event, all at once, over all hosts.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use snowmelt_network::{Counters, Egress};
use snowmelt_types::{ErrorReport, FunctionName, HostName, JobId};
use utoipa::ToSchema;

use crate::{FunctionSpec, Invocation, LogEntry};

/// A function to be run once for each event, all at once, over all hosts.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BurstRequest {
    /// The function; it is not deployed.
    pub function: FunctionSpec,
    /// One event for each rank.
    #[schema(value_type = Vec<serde_json::Value>)]
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
    /// The identifier of the burst, chosen by the client: `j-` and 32 hexadecimal digits. A request
    /// with the identifier of a burst that exists starts nothing, and waits for that burst.
    #[serde(default)]
    pub job: Option<JobId>,
    /// The answer is a [`BurstStatus`], at once; the burst goes on.
    #[serde(default)]
    pub asynchronous: bool,
    /// How long the burst goes on when no client waits for it, in milliseconds.
    #[serde(default = "burst_claimed_within")]
    pub claim_within_ms: u64,
}

/// A deployed function to be run once for each event, all at once, over all hosts. How many
/// instances it may have for single calls does not matter here.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BurstCalls {
    /// One event for each rank.
    #[schema(value_type = Vec<serde_json::Value>)]
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
    /// The identifier of the burst, chosen by the client: `j-` and 32 hexadecimal digits. A request
    /// with the identifier of a burst that exists starts nothing, and waits for that burst.
    #[serde(default)]
    pub job: Option<JobId>,
    /// The answer is a [`BurstStatus`], at once; the burst goes on.
    #[serde(default)]
    pub asynchronous: bool,
    /// How long the burst goes on when no client waits for it, in milliseconds.
    #[serde(default = "burst_claimed_within")]
    pub claim_within_ms: u64,
}

/// The network of a burst.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkRequest {
    /// What functions may reach outside the job; nothing by default.
    #[serde(default)]
    pub egress: Egress,
}

fn burst_starts_within() -> u64 {
    60_000
}

fn burst_claimed_within() -> u64 {
    10_000
}

/// How far a burst is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BurstState {
    /// It waits for room on the hosts.
    Waiting,
    /// Its instances start; none of its functions was called.
    Starting,
    /// Its functions are called.
    Running,
    /// All its functions have ended, each with a result or an error: there is an answer.
    Ended,
    /// It failed as a whole.
    Failed,
}

/// A burst that runs, or whose outcome is kept.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BurstStatus {
    /// Its identifier.
    pub job: JobId,
    /// The function.
    pub function: FunctionName,
    /// How far it is.
    pub state: BurstState,
    /// Its functions.
    pub functions: u32,
    /// Those that have ended.
    pub ended: u32,
    /// Where they run, in the order of ranks.
    pub hosts: Vec<HostName>,
    /// When it was accepted, in milliseconds since 1970.
    pub since_ms: u64,
    /// The room that it waits for, while it does.
    #[serde(default)]
    pub waits_for: Option<BurstRoom>,
    /// Why it failed, if it did.
    #[serde(default)]
    pub error: Option<ErrorReport>,
}

/// The room that a burst waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BurstRoom {
    /// Memory of all its functions, in bytes.
    pub needed: u64,
    /// Memory that the hosts have to give, in bytes.
    pub free: u64,
    /// Those hosts.
    pub hosts: u32,
}

/// What became of a burst.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
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
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
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
