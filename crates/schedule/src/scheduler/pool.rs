//! The decision how many hosts a provider is asked for, and which hosts it gets back (FaaSNet 3.1:
//! a pool of free VMs, from which the active ones come).
//!
//! Boundary: decisions only; the caller passes the time, and reports the result of each request.
//! Invariants: a request never leads to more hosts than the policy allows, and a release never to
//! fewer. Control's own host is never released, nor a host that is not the provider's, is drained,
//! or has work. After each further failure the provider is left alone for longer.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use snowmelt_types::{Digest, HostName};

use super::Scheduler;
use crate::requests::CallDemand;

/// The least time between two requests to a provider.
const INTERVAL: Duration = Duration::from_secs(5);

/// The time for which a request must have waited before a host is asked for: others may end
/// meanwhile.
const WAITS_FOR: Duration = Duration::from_secs(1);

/// The time without requests after a provider's first failure. It doubles with each further
/// failure, up to `LAST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LAST_PAUSE: Duration = Duration::from_secs(300);

/// The limits on the number of hosts.
#[derive(Clone, Copy, Debug)]
pub struct PoolPolicy {
    /// The least number of hosts, control's own included.
    pub least: u32,
    /// The greatest number of hosts, control's own included.
    pub most: u32,
    /// The time after which a free host is released.
    pub release_after: Duration,
}

/// A host of the cluster, as it is now.
#[derive(Clone, Debug)]
pub struct PoolHost {
    /// The name of the host.
    pub name: HostName,
    /// Whether the host is free: it has no functions, and runs nothing.
    pub is_free: bool,
    /// Whether the host is drained: it gets no new work.
    pub is_drained: bool,
    /// Whether the provider has started the host, and may end it.
    pub is_provided: bool,
}

/// A request to the provider of hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolStep {
    /// The cluster is to have this number of hosts.
    Grow(u32),
    /// The named host is to end, once it is drained.
    Release(HostName),
}

/// The scaler of a cluster's pool: decides how many hosts the provider is asked for.
#[derive(Debug)]
pub struct PoolScaler {
    policy: PoolPolicy,
    /// The time since which each free host is free.
    free: BTreeMap<HostName, Duration>,
    /// The time until which the provider is asked for nothing.
    quiet_until: Duration,
    /// The number of requests that have failed in a row.
    failures: u32,
}

impl PoolScaler {
    /// Makes a pool without any knowledge of hosts.
    pub fn new(policy: PoolPolicy) -> Self {
        Self { policy, free: BTreeMap::new(), quiet_until: Duration::ZERO, failures: 0 }
    }

    /// Returns the request to make now, if any. `lacking` is how many further hosts the waiting
    /// requests need.
    pub fn step(&mut self, hosts: &[PoolHost], lacking: u32, now: Duration) -> Option<PoolStep> {
        self.free.retain(|name, _| hosts.iter().any(|host| host.is_free && host.name == *name));
        for host in hosts.iter().filter(|host| host.is_free) {
            self.free.entry(host.name.clone()).or_insert(now);
        }
        if !self.may_ask(now) {
            return None;
        }
        let PoolPolicy { least, most, .. } = self.policy;
        let count = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
        let wanted = count.saturating_add(lacking).min(most).max(least);
        if wanted > count {
            return Some(PoolStep::Grow(wanted));
        }
        if lacking > 0 || count <= least {
            return None;
        }
        self.to_release(hosts, now).map(PoolStep::Release)
    }

    /// The host that has been free for the longest, if that is long enough and the provider may end
    /// it.
    fn to_release(&self, hosts: &[PoolHost], now: Duration) -> Option<HostName> {
        let may_go = hosts.iter().filter(|host| host.is_provided && !host.is_drained);
        let free = may_go.filter_map(|host| Some((*self.free.get(&host.name)?, &host.name)));
        let long =
            free.filter(|(since, _)| now.saturating_sub(*since) >= self.policy.release_after);
        long.min().map(|(_, name)| name.clone())
    }

    /// Whether the provider may be asked for something now.
    pub fn may_ask(&self, now: Duration) -> bool {
        now >= self.quiet_until
    }

    /// Takes the result of a request to the provider.
    pub fn asked(&mut self, has_succeeded: bool, now: Duration) {
        if has_succeeded {
            self.failures = 0;
            self.quiet_until = now + INTERVAL;
            return;
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(LAST_PAUSE);
        self.failures += 1;
        self.quiet_until = now + pause;
    }

    /// The time until the next request after a failure. `None` if the last request succeeded.
    pub fn pause(&self, now: Duration) -> Option<Duration> {
        (self.failures > 0).then(|| self.quiet_until.saturating_sub(now))
    }
}

impl Scheduler {
    /// Sets whether hosts may be added. If so, a request that the present hosts are too small or
    /// too few for waits instead of being refused.
    pub fn set_may_grow(&mut self, may_grow: bool) {
        self.is_changed |= self.may_grow != may_grow;
        self.may_grow = may_grow;
    }

    /// Returns how many further hosts the waiting calls, gangs and tasks need. The further hosts
    /// are assumed to be as large as the largest known one.
    pub fn lacking(&self, now: Duration) -> u32 {
        let Some(since) = now.checked_sub(WAITS_FOR) else { return 0 };
        let whole = self.lacking_for_gangs(since).saturating_add(self.lacking_for_tasks(since));
        self.lacking_for_calls(now).saturating_add(whole)
    }

    fn lacking_for_calls(&self, now: Duration) -> u32 {
        let waits = self.calls.values().filter(|held| {
            let is_asking = held.call.only.is_none() && held.is_waiting();
            is_asking && now.saturating_sub(held.since) >= WAITS_FOR
        });
        let mut calls: HashMap<&Digest, (u32, &CallDemand)> = HashMap::new();
        for held in waits {
            calls.entry(&held.call.function).or_insert((0, &held.call)).0 += 1;
        }
        let most = self.hosts.values().map(|host| host.most).max().unwrap_or_default();
        let instances =
            |(calls, call): &(u32, &CallDemand)| calls.div_ceil(call.concurrency.max(1));
        let memory =
            calls.values().map(|call| u64::from(instances(call)) * call.1.memory).sum::<u64>();
        let by_memory = if most == 0 { 1 } else { memory.div_ceil(most) };
        let most_instances = calls.values().map(instances).max().unwrap_or_default();
        let by_instances = most_instances.div_ceil(self.policy.instances_per_host.max(1));
        let count = u32::try_from(by_memory).unwrap_or(u32::MAX).max(by_instances);
        if calls.is_empty() { 0 } else { count }
    }
}
