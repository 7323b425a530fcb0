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
    /// The function. A burst does not deploy it.
    pub function: FunctionSpec,
    /// The events, one for each rank, in the order of ranks.
    #[schema(value_type = Vec<serde_json::Value>)]
    pub events: Vec<Box<RawValue>>,
    /// The most time for the start of all instances, in milliseconds. After that none of them runs.
    #[serde(default = "burst_starts_within")]
    pub start_within_ms: u64,
    /// The network of the job, by which its functions reach each other; absent: they do not.
    #[serde(default)]
    pub network: Option<NetworkRequest>,
    /// The most hosts to run it on; absent: all.
    #[serde(default)]
    pub most_hosts: Option<u32>,
    /// The identifier of the burst, chosen by the client: `j-` and 32 hexadecimal digits. A request
    /// with the identifier of a burst that exists starts nothing, and waits for that burst.
    #[serde(default)]
    pub job: Option<JobId>,
    /// True to be answered at once, with a [`BurstStatus`]; the burst goes on.
    #[serde(default)]
    pub asynchronous: bool,
    /// How long the burst goes on when no client waits for it, in milliseconds.
    #[serde(default = "burst_claimed_within")]
    pub claim_within_ms: u64,
}

/// A deployed function to be run once for each event, all at once, over all hosts. The limit on the
/// function's instances for single calls does not apply here.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BurstCalls {
    /// The events, one for each rank, in the order of ranks.
    #[schema(value_type = Vec<serde_json::Value>)]
    pub events: Vec<Box<RawValue>>,
    /// The most time for the start of all instances, in milliseconds. After that none of them runs.
    #[serde(default = "burst_starts_within")]
    pub start_within_ms: u64,
    /// The network of the job, by which its functions reach each other; absent: they do not.
    #[serde(default)]
    pub network: Option<NetworkRequest>,
    /// The most hosts to run it on; absent: all.
    #[serde(default)]
    pub most_hosts: Option<u32>,
    /// The identifier of the burst, chosen by the client: `j-` and 32 hexadecimal digits. A request
    /// with the identifier of a burst that exists starts nothing, and waits for that burst.
    #[serde(default)]
    pub job: Option<JobId>,
    /// True to be answered at once, with a [`BurstStatus`]; the burst goes on.
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
    /// The address ranges and ports outside the job that its functions may reach; none by default.
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
    /// The burst waits for room on the hosts.
    Waiting,
    /// The burst's instances start; none of its functions was called.
    Starting,
    /// The burst's functions were called, and not all have ended.
    Running,
    /// All functions of the burst have ended, each with a result or an error: there is an answer.
    Ended,
    /// The burst failed as a whole.
    Failed,
}

/// A burst that runs, or whose outcome is kept.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BurstStatus {
    /// The identifier of the burst.
    pub job: JobId,
    /// The function.
    pub function: FunctionName,
    /// How far the burst is.
    pub state: BurstState,
    /// The number of the burst's functions (ranks).
    pub functions: u32,
    /// The number of the burst's functions that have ended.
    pub ended: u32,
    /// The hosts on which the functions run, in the order of ranks.
    pub hosts: Vec<HostName>,
    /// When the burst was accepted, in milliseconds since 1970.
    pub since_ms: u64,
    /// The room that the burst waits for, in the state `waiting` only.
    #[serde(default)]
    pub waits_for: Option<BurstRoom>,
    /// Why the burst failed; absent unless it failed as a whole.
    #[serde(default)]
    pub error: Option<ErrorReport>,
}

/// The room that a burst waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BurstRoom {
    /// Memory that all functions of the burst need together, in bytes.
    pub needed: u64,
    /// Memory that is free on the hosts, in bytes.
    pub free: u64,
    /// The number of hosts that `free` is the sum of.
    pub hosts: u32,
}

/// The outcome of a burst that has ended.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BurstAnswer {
    /// The identifier of the burst.
    pub job: JobId,
    /// The invocations, one for each event, in the order of events.
    pub invocations: Vec<Invocation>,
    /// The output of the functions, to stdout and stderr; functions that wrote nothing are left
    /// out.
    pub logs: Vec<LogEntry>,
    /// The parts of the burst: a host each, with its ranks and its times.
    pub hosts: Vec<BurstPart>,
    /// Time from the request until every instance had loaded its code, in microseconds.
    pub started_us: u64,
    /// Time from the request until the last function ended, in microseconds.
    pub wall_us: u64,
}

/// The part of a burst that one host ran: contiguous ranks, and how long their start took.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BurstPart {
    /// The host.
    pub host: HostName,
    /// The first of the ranks that the host ran.
    pub first: u32,
    /// The number of ranks that the host ran.
    pub count: u32,
    /// Time to make the job's network on the host, in microseconds; 0 without a network.
    pub network_us: u64,
    /// Requests to the kernel that made the job's network on the host; all 0 without a network.
    pub network: Counters,
    /// Time from the order to open the part until its instances were started, in microseconds; with
    /// `network_us`.
    pub started_us: u64,
    /// Time from the order to make the part ready until all hosts had answered over the job's
    /// network, in microseconds.
    pub reached_us: u64,
    /// Time from the order to make the part ready until its instances had loaded their code, in
    /// microseconds; with `reached_us`.
    pub loaded_us: u64,
}
