//! The choice of a host by a look at all hosts: the plain model for the choice by orders.

use std::cmp::Reverse;
use std::time::Duration;

use snowmelt_types::HostName;

use crate::hosts::{HostUsage, Instances};
use crate::{CallDemand, Scheduler, SchedulerPolicy};

/// A host with its instances of the function.
type LinearCandidate<'a> = (&'a HostName, &'a HostUsage, Option<&'a Instances>);

/// The key of a host: overload, missing parts (0 none, 1 the function, 2 the image), depth, trees,
/// memory left, name.
type Rank<'a> = (u64, u8, u32, u32, u64, &'a HostName);

/// Returns the host that runs a call now, which must be the choice of [`Scheduler::host_for`].
pub(super) fn choose(
    scheduler: &Scheduler,
    call: &CallDemand,
    kept: Option<&CallDemand>,
    now: Duration,
) -> Option<HostName> {
    let hosts = candidates(scheduler, call);
    let policy = &scheduler.policy;
    let is_kept = |name: &HostName| {
        kept.is_some_and(|kept| {
            let mut all = candidates(scheduler, kept).into_iter();
            all.find(|host| host.0 == name).is_some_and(|host| could_start(kept, host, policy))
        })
    };
    let slot = |needs_core: bool| {
        let ranks = hosts.iter().filter_map(|host| slot_rank(call, *host, policy, now));
        ranks.filter(|rank| !needs_core || rank.0 == 0).min().map(|(.., name)| name)
    };
    let room = || {
        let open = hosts.iter().filter(|host| may_start(call, **host, policy) && !is_kept(host.0));
        open.map(|host| rank(call, *host)).min()
    };
    let is_near =
        |(overload, lacks, ..): &Rank<'_>| *overload == 0 && (call.image.is_none() || *lacks != 2);
    let own = || {
        let own = policy.near.as_ref().filter(|_| call.near_first)?;
        let it = *hosts.iter().find(|host| host.0 == own)?;
        let has_slot = slot_rank(call, it, policy, now).is_some_and(|rank| rank.0 == 0);
        let has_room = may_start(call, it, policy) && !is_kept(own) && overload(call, it.1) == 0;
        (has_slot || has_room).then_some(own)
    };
    let found = own()
        .or_else(|| slot(true))
        .or_else(|| room().filter(is_near).map(|(.., name)| name))
        .or_else(|| slot(false))
        .or_else(|| room().map(|(.., name)| name));
    found.cloned()
}

/// Whether a call could have a new instance anywhere if enough memory became free there.
pub(super) fn could_ever_start(scheduler: &Scheduler, call: &CallDemand) -> bool {
    candidates(scheduler, call)
        .into_iter()
        .any(|candidate| could_start(call, candidate, &scheduler.policy))
}

fn candidates<'a>(scheduler: &'a Scheduler, call: &CallDemand) -> Vec<LinearCandidate<'a>> {
    let on = scheduler.functions.get(&call.function);
    let instances = |name| scheduler.hosts.id(name).and_then(|id| on?.get(id));
    scheduler.hosts.iter().map(|(name, host)| (name, host, instances(name))).collect()
}

fn busy(call: &CallDemand, instances: Option<&Instances>) -> u32 {
    instances.map_or(0, |instance| instance.calls.div_ceil(call.concurrency))
}

fn is_asked(call: &CallDemand, name: &HostName) -> bool {
    call.only.as_ref().is_none_or(|only| only == name)
}

fn could_start(
    call: &CallDemand,
    (name, host, instances): LinearCandidate<'_>,
    policy: &SchedulerPolicy,
) -> bool {
    busy(call, instances) < policy.instances_per_host
        && !host.is_drained
        && is_asked(call, name)
        && host.most >= call.memory
}

fn may_start(
    call: &CallDemand,
    (name, host, instances): LinearCandidate<'_>,
    policy: &SchedulerPolicy,
) -> bool {
    busy(call, instances) < policy.instances_per_host
        && !host.is_full
        && !host.is_drained
        && is_asked(call, name)
        && host.left() >= call.memory
}

/// The key of a free instance: overload, whether its host is not control's own, the time of its
/// last use, name.
fn slot_rank<'a>(
    call: &CallDemand,
    (name, host, instances): LinearCandidate<'a>,
    policy: &SchedulerPolicy,
    now: Duration,
) -> Option<(u64, bool, Reverse<Duration>, &'a HostName)> {
    let instances = instances.filter(|_| is_asked(call, name) && !host.is_drained)?;
    let is_shared = instances.has_shared_slot(call.concurrency);
    let has_idle = instances.idle(call.concurrency, now) > 0
        && busy(call, Some(instances)) < policy.instances_per_host
        && host.left() >= call.memory;
    let overload = if is_shared { 0 } else { overload(call, host) };
    let is_far = policy.near.as_ref() != Some(name);
    let is_free = has_idle || (is_shared && !host.is_full);
    is_free.then(|| (overload, is_far, Reverse(instances.last()), name))
}

fn rank<'a>(call: &CallDemand, (name, host, instances): LinearCandidate<'a>) -> Rank<'a> {
    let held = call.image.as_ref().and_then(|image| host.images.get(image));
    let lacks = match (instances, held) {
        (Some(_), _) => 0,
        (None, Some(_)) => 1,
        (None, None) => 2,
    };
    let depth = held.and_then(|held| held.depth).unwrap_or(u32::MAX);
    (overload(call, host), lacks, depth, host.inner, host.left(), name)
}

fn overload(call: &CallDemand, host: &HostUsage) -> u64 {
    let taken = host.cpu_millis + u64::from(call.cpu_millis);
    let cores = host.room.cpu_millis.max(1);
    if taken <= cores { 0 } else { taken * 1000 / cores }
}
