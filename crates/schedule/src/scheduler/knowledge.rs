//! Read access to the scheduler's knowledge of hosts.

use std::time::Duration;

use snowmelt_types::{Digest, HostName};

use super::Scheduler;
use crate::hosts::{Instances, OnHosts};
use crate::requests::CallDemand;

impl Scheduler {
    /// The number of running calls of a function on each host.
    pub fn running(&self, function: &Digest) -> impl Iterator<Item = (&HostName, u32)> {
        self.instances_of(function).map(|(host, instances)| (host, instances.calls))
    }

    /// The number of running calls on a host.
    pub fn calls_on(&self, host: &HostName) -> u32 {
        let Some(id) = self.hosts.id(host) else { return 0 };
        self.functions.values().filter_map(|on| on.get(id)).map(|function| function.calls).sum()
    }

    /// The number of idle instances of a function on each host.
    pub fn idle(&self, call: &CallDemand, now: Duration) -> impl Iterator<Item = (&HostName, u32)> {
        let each = call.concurrency;
        let on = self.instances_of(&call.function);
        on.map(move |(host, instances)| (host, instances.idle(each, now)))
    }

    /// The memory that is taken on a host, and the memory that it has for instances, in bytes.
    pub fn memory(&self, host: &HostName) -> Option<(u64, u64)> {
        self.hosts.get(host).map(|host| (host.memory, host.room.memory))
    }

    fn instances_of(&self, function: &Digest) -> impl Iterator<Item = (&HostName, &Instances)> {
        let on = self.functions.get(function).into_iter().flat_map(OnHosts::iter);
        on.filter_map(move |(id, instances)| Some((&self.hosts.by_id(id)?.name, instances)))
    }

    /// The host with the most free memory for instances, and how much that is in bytes.
    pub fn most_free(&self) -> Option<(&HostName, u64)> {
        let open = self.hosts.iter().filter(|(_, host)| !host.is_drained);
        open.map(|(name, host)| (name, host.left())).max_by_key(|(_, left)| *left)
    }
}
