//! Types of the scheduler's interface: calls, the policy for all calls, and the decisions on each
//! call.

use std::time::Duration;

use snowmelt_types::{Digest, HostName, Tenant};

/// The number of a call, gang or task that waits or runs. Tickets are given in ascending order: a
/// later request has a greater one.
pub type Ticket = u64;

/// The number of a gang's ranks on each host, in the order of ranks.
pub type GangRanks = Vec<(HostName, u32)>;

/// The usual time after which a waiting call is starved.
pub const STARVED_AFTER: Duration = Duration::from_secs(10);

/// The settings of a scheduler that apply to all calls.
#[derive(Clone, Debug)]
pub struct SchedulerPolicy {
    /// The greatest number of instances of one function on one host (FaaSNet 3.2: 20).
    pub instances_per_host: u32,
    /// The host of control, which is preferred among hosts with free instances. `None` if no host
    /// is preferred.
    pub near: Option<HostName>,
    /// The time after which a waiting call or gang is starved. A starved call gets the next room
    /// that is large enough for it: until then, no other call gets a new instance on a host where
    /// the starved one could have one. For a starved gang, its share of each host is kept.
    pub starved_after: Duration,
    /// The time without calls after which a function is taken back from a host (FaaSNet 3.2: 15
    /// minutes).
    pub reclaim_after: Duration,
}

/// The requirements of a call of a function.
#[derive(Clone, Debug)]
pub struct CallDemand {
    /// The owner of the call.
    pub tenant: Tenant,
    /// The digest of the function and its limits: calls with the same digest may use the same
    /// instances.
    pub function: Digest,
    /// The image or the packages that instances of the function start from. `None` if no other
    /// function may share them.
    pub image: Option<Digest>,
    /// The memory limit of an instance, in bytes.
    pub memory: u64,
    /// The share of cores that a call takes, in thousandths of a core.
    pub cpu_millis: u32,
    /// The number of calls that an instance takes at the same time, which is one of the function's
    /// limits.
    pub concurrency: u32,
    /// The time for which an instance without calls is kept.
    pub idle: Duration,
    /// The only host that may run the call. `None` if any host may.
    pub only: Option<HostName>,
    /// Whether control's own host comes before idle instances of other hosts, as long as it has a
    /// free core: data from the client goes through that host in any case.
    pub near_first: bool,
}

/// The decision of the scheduler on a call, a gang or a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The call or task runs on this host.
    Run(Ticket, HostName),
    /// The ranks of the gang start on these hosts.
    Start(Ticket, GangRanks),
    /// The call or gang has expired: no host had room for it before its deadline.
    Expired(Ticket),
    /// The call or gang is refused: none of the present hosts will ever have room for it.
    Refused(Ticket),
}

/// A function or an image that a host has to give up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reclaimed {
    /// The host has to forget this function and end its idle instances.
    Function(HostName, Digest),
    /// The host has to leave the tree of this image.
    Image(HostName, Digest),
}

/// The state of a call or task.
#[derive(Debug)]
pub(crate) enum State {
    Waits,
    RunsOn(HostName),
    /// The host that ran the call or task was removed.
    Lost,
}
