//! Gangs: requests of several ranks that start together or not at all, each host with ranks that
//! follow each other.

use std::sync::Arc;
use std::time::Duration;

use snowmelt_types::{Digest, HostName, Tenant};

use crate::call::{Parts, Ticket};

/// What a gang needs.
#[derive(Clone, Debug)]
pub struct Gang {
    /// Whose it is.
    pub tenant: Tenant,
    /// The image that it runs in, if hosts read it in a tree.
    pub image: Option<Digest>,
    /// Its ranks: at least one.
    pub ranks: u32,
    /// Bytes of each rank.
    pub memory: u64,
    /// Thousandths of cores of each rank.
    pub cpu_millis: u32,
    /// The most hosts that it may run on, if it says so.
    pub most_hosts: Option<u32>,
    /// The only host that can run it, if that is so.
    pub only: Option<HostName>,
}

/// A gang that waits or runs.
#[derive(Debug)]
pub(crate) struct HeldGang {
    pub gang: Arc<Gang>,
    pub since: Duration,
    pub deadline: Duration,
    /// Where it runs.
    pub parts: Option<Parts>,
}

/// For whom room is kept.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kept {
    /// A call that gets the next room, or the gang whose share of the hosts is kept, or the task that
    /// has kept room on a host.
    pub ticket: Option<Ticket>,
    /// The gang that has waited for the longest, while its share is not kept: it waits for other gangs,
    /// or for a call that has waited for longer.
    pub first_gang: Option<Ticket>,
}

/// Memory for ranks of the hosts that a gang could get now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GangRoom {
    /// Hosts.
    pub hosts: u32,
    /// Bytes that are free now.
    pub free: u64,
    /// Bytes that there would be if nothing ran.
    pub most: u64,
}

impl Gang {
    /// The memory of all its ranks.
    pub fn bytes(&self) -> u64 {
        self.memory.saturating_mul(self.ranks.into())
    }
}
