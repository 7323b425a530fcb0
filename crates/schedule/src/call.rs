//! Calls, what holds for all of them, and what is decided about each.

use std::time::Duration;

use snowmelt_types::{Digest, HostName, Tenant};

/// A call, gang or task that waits or runs. Later tickets are greater.
pub type Ticket = u64;

/// How many ranks of a gang each host has, in the order of ranks.
pub type Parts = Vec<(HostName, u32)>;

/// After which part of its patience a call is starved, usually.
pub const STARVED_AFTER: Duration = Duration::from_secs(10);

/// What holds for all calls.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The most instances of a function on one host (FaaSNet 3.2: 20).
    pub instances_per_host: u32,
    /// A host that is preferred among those with free instances: that of control.
    pub near: Option<HostName>,
    /// A call that has waited for this long gets the next room that is enough for it: until then no
    /// other call gets a new instance on a host where it could have one. For a gang its share of each
    /// host is kept.
    pub starved_after: Duration,
    /// A host is reclaimed from a function that was not called there for this long (FaaSNet 3.2: 15
    /// minutes).
    pub reclaim_after: Duration,
}

/// What a call needs.
#[derive(Clone, Debug)]
pub struct Call {
    /// Whose it is.
    pub tenant: Tenant,
    /// The function with its limits: calls of the same one may use the same instances.
    pub function: Digest,
    /// The image or the packages that its instances start from, if other functions may share it.
    pub image: Option<Digest>,
    /// Bytes: the limit of an instance.
    pub memory: u64,
    /// Thousandths of cores.
    pub cpu_millis: u32,
    /// Calls that an instance takes at the same time: one of the limits of the function.
    pub concurrency: u32,
    /// How long an instance is kept without calls.
    pub idle: Duration,
    /// The only host that can run it, if that is so.
    pub only: Option<HostName>,
    /// What its client sends goes through control's own host: that one comes before idle instances of
    /// others as long as it has a free core.
    pub near_first: bool,
}

/// What is to be done with a call, a gang or a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It runs on this host.
    Run(Ticket, HostName),
    /// The ranks of the gang start on these hosts.
    Start(Ticket, Parts),
    /// No host had room for it in time.
    Expired(Ticket),
    /// No host that is there will ever have room for it.
    Refused(Ticket),
}

/// What is to be taken back from a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reclaimed {
    /// The host is to forget this function and end its idle instances.
    Function(HostName, Digest),
    /// The host is to leave the tree of this image.
    Image(HostName, Digest),
}

/// What a call or task does.
#[derive(Debug)]
pub(crate) enum State {
    Waits,
    RunsOn(HostName),
    /// Its host was removed.
    Lost,
}
