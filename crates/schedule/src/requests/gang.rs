//! Gangs: requests for several ranks (processes that work together) that start together or not at
//! all. Each host has ranks with consecutive numbers.

use std::sync::Arc;
use std::time::Duration;

use snowmelt_types::{Digest, HostName, Tenant};

use super::call::{GangRanks, Ticket};

/// The requirements of a gang.
#[derive(Clone, Debug)]
pub struct GangDemand {
    /// The owner of the gang.
    pub tenant: Tenant,
    /// The image that the gang runs in, if hosts read it from each other in a tree.
    pub image: Option<Digest>,
    /// The number of ranks, at least 1.
    pub ranks: u32,
    /// The memory of each rank in bytes.
    pub memory: u64,
    /// The share of cores of each rank, in thousandths of a core.
    pub cpu_millis: u32,
    /// The greatest number of hosts that the gang may run on. `None` for no limit.
    pub most_hosts: Option<u32>,
    /// The only host that may run the gang. `None` if any host may.
    pub only: Option<HostName>,
}

/// A gang that waits or runs.
#[derive(Debug)]
pub(crate) struct HeldGang {
    pub gang: Arc<GangDemand>,
    pub since: Duration,
    pub deadline: Duration,
    /// The hosts on which the gang runs, with the number of ranks of each. `None` while it waits.
    pub parts: Option<GangRanks>,
}

/// The reservations: the requests for which room is kept.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoomReservations {
    /// The starved call that gets the next room, the gang whose share of the hosts is kept, or the
    /// task for which room is kept on a host.
    pub ticket: Option<Ticket>,
    /// The gang that has waited for the longest, while its share is not kept because it waits for
    /// other gangs or for a call that has waited for longer.
    pub first_gang: Option<Ticket>,
}

/// The memory for ranks on the hosts that a gang could get now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GangRoom {
    /// The number of these hosts.
    pub hosts: u32,
    /// Free memory now, in bytes.
    pub free: u64,
    /// Memory if nothing ran on these hosts, in bytes.
    pub most: u64,
}

impl GangDemand {
    /// The memory of all ranks of the gang, in bytes.
    pub fn bytes(&self) -> u64 {
        self.memory.saturating_mul(self.ranks.into())
    }
}
