//! How many hosts a provider is asked for, and which it gets back (FaaSNet 3.1: a pool of free VMs,
//! from which the active ones come).
//!
//! Boundary: decisions only; who asks gives the time, and says what became of each.
//! Invariants: there are never more hosts than the policy allows because of a request, nor fewer
//! because of a release; control's own host, one that is not the provider's, is drained, or has
//! work is not released; after a failure nothing is asked for longer each time.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use snowmelt_types::{Digest, HostName};

use crate::call::Call;
use crate::scheduler::Scheduler;

/// The least time between two requests to a provider.
const INTERVAL: Duration = Duration::from_secs(5);

/// What has waited for less asks for no host: others may end meanwhile.
const WAITS_FOR: Duration = Duration::from_secs(1);

/// How long nothing is asked of a provider that has failed once, and that has failed many times.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LAST_PAUSE: Duration = Duration::from_secs(300);

/// How many hosts there are to be.
#[derive(Clone, Copy, Debug)]
pub struct PoolPolicy {
    /// At least so many, control's own included.
    pub least: u32,
    /// At most so many.
    pub most: u32,
    /// A host that was free for this long is released.
    pub release_after: Duration,
}

/// A host of the cluster, as it is now.
#[derive(Clone, Debug)]
pub struct PoolHost {
    /// Its name.
    pub name: HostName,
    /// It has no functions, and runs nothing.
    pub is_free: bool,
    /// It gets no new work.
    pub is_drained: bool,
    /// The provider has started it, and may end it.
    pub is_provided: bool,
}

/// What is to be asked of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolStep {
    /// That the cluster has so many hosts.
    Grow(u32),
    /// That this host is ended, once it is drained.
    Release(HostName),
}

/// The pool of a cluster's hosts.
#[derive(Debug)]
pub struct Pool {
    policy: PoolPolicy,
    /// Since when each host is free.
    free: BTreeMap<HostName, Duration>,
    /// Until then nothing is asked.
    quiet_until: Duration,
    /// Requests that failed one after the other.
    failures: u32,
}

impl Pool {
    /// Of which nothing is known yet.
    pub fn new(policy: PoolPolicy) -> Self {
        Self { policy, free: BTreeMap::new(), quiet_until: Duration::ZERO, failures: 0 }
    }

    /// What is to be asked now, if `lacking` further hosts are needed for what waits.
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

    /// The host that has been free for the longest.
    fn to_release(&self, hosts: &[PoolHost], now: Duration) -> Option<HostName> {
        let may_go = hosts.iter().filter(|host| host.is_provided && !host.is_drained);
        let free = may_go.filter_map(|host| Some((*self.free.get(&host.name)?, &host.name)));
        let long =
            free.filter(|(since, _)| now.saturating_sub(*since) >= self.policy.release_after);
        long.min().map(|(_, name)| name.clone())
    }

    /// Whether something may be asked of the provider now.
    pub fn may_ask(&self, now: Duration) -> bool {
        now >= self.quiet_until
    }

    /// A request is over.
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

    /// How long nothing is asked after a failure.
    pub fn pause(&self, now: Duration) -> Option<Duration> {
        (self.failures > 0).then(|| self.quiet_until.saturating_sub(now))
    }
}

impl Scheduler {
    /// Whether hosts may come: what the hosts are too small or too few for waits for them.
    pub fn set_may_grow(&mut self, may_grow: bool) {
        self.is_changed |= self.may_grow != may_grow;
        self.may_grow = may_grow;
    }

    /// How many further hosts, as large as the largest one, the calls, gangs and tasks need that wait.
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
        let mut calls: HashMap<&Digest, (u32, &Call)> = HashMap::new();
        for held in waits {
            calls.entry(&held.call.function).or_insert((0, &held.call)).0 += 1;
        }
        let most = self.hosts.values().map(|host| host.most).max().unwrap_or_default();
        let instances = |(calls, call): &(u32, &Call)| calls.div_ceil(call.concurrency.max(1));
        let memory = calls.values().map(|it| u64::from(instances(it)) * it.1.memory).sum::<u64>();
        let by_memory = if most == 0 { 1 } else { memory.div_ceil(most) };
        let most_instances = calls.values().map(instances).max().unwrap_or_default();
        let by_instances = most_instances.div_ceil(self.policy.instances_per_host.max(1));
        let count = u32::try_from(by_memory).unwrap_or(u32::MAX).max(by_instances);
        if calls.is_empty() { 0 } else { count }
    }
}
