//! The host for a call.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use snowmelt_types::HostName;

use crate::call::{Call, Policy};
use crate::function::Instances;
use crate::host::Host;
use crate::on_hosts::OnHosts;

/// By what hosts are compared for a new instance; the least is taken.
///
/// First come hosts that have a core for it: a host whose cores are all taken is full as long as
/// another one is not. Among those the one that holds most of what it needs, then by places in
/// trees, and then the fullest that it fits on, so that the emptiest hosts become free.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank<'a> {
    /// Load of the cores in thousandths, if they are all taken; else 0.
    overload: u64,
    lacks: Lacks,
    /// Hosts above it in the tree of the image.
    depth: u32,
    /// Trees in which it sends to others.
    inner: u32,
    memory_left: u64,
    name: &'a HostName,
}

/// What a host lacks for the first instance of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lacks {
    /// It has instances of the function, or had some lately.
    Nothing,
    /// It has the image or the packages, of another function.
    Code,
    Image,
}

/// Hosts by name.
pub(crate) type Hosts = BTreeMap<HostName, Host>;

/// The host that runs a call now; `None` if none has room. What becomes free on hosts that `kept` can
/// start on is kept for that call.
///
/// A free instance is taken first, if a core is free for it: its start is the cheapest. A new
/// instance on a host with a free core comes next, unless that host would have to read an image
/// first: a call on cores that others use may take several times as long, and a start does not.
/// Control's own host comes before all of them if the call says so, and a core of it is free.
pub(crate) fn choose<'a>(
    call: &Call,
    hosts: &'a Hosts,
    on: Option<&OnHosts>,
    (policy, kept): (&Policy, Option<(&Call, Option<&OnHosts>)>),
    now: Duration,
) -> Option<&'a HostName> {
    let of_call = |name: &HostName| call.only.as_ref().is_none_or(|only| only == name);
    let slot = |needs_core| {
        let rank = |name: &HostName| {
            let (name, host) = hosts.get_key_value(name).filter(|(name, _)| of_call(name))?;
            slot_rank(call, (name, host), on?.get(name)?, policy, now)
        };
        with_slot(on?, rank, (policy, needs_core)).map(|rank| rank.name)
    };
    let is_kept = |name: &HostName, host: &Host| {
        kept.is_some_and(|(kept, on)| {
            could_start(kept, name, host, on.and_then(|on| on.get(name)), policy)
        })
    };
    let room = || {
        let open = hosts
            .iter()
            .filter(|(name, host)| host.fits(call.memory) && of_call(name) && !is_kept(name, host));
        with_room(call, open, on, policy)
    };
    let near = || {
        let has_all = |rank: &Rank<'_>| call.image.is_none() || rank.lacks != Lacks::Image;
        room().filter(|rank| rank.overload == 0 && has_all(rank))
    };
    let own = || {
        let own = policy.near.as_ref().filter(|name| call.near_first && of_call(name))?;
        let (name, host) = hosts.get_key_value(own)?;
        let instances = on.and_then(|on| on.get(name));
        let slot = instances.and_then(|it| slot_rank(call, (name, host), it, policy, now));
        let has_room = || {
            let is_free = overload(call, host) == 0 && !is_kept(name, host);
            is_free && may_start(call, host, instances, policy)
        };
        let has_slot = slot.is_some_and(|rank| rank.overload == 0);
        (has_slot || has_room()).then_some(name)
    };
    own()
        .or_else(|| slot(true))
        .or_else(|| near().map(|rank| rank.name))
        .or_else(|| slot(false))
        .or_else(|| room().map(|rank| rank.name))
}

/// Whether a call could have a new instance on a host if enough memory became free there.
pub(crate) fn could_start(
    call: &Call,
    name: &HostName,
    host: &Host,
    instances: Option<&Instances>,
    policy: &Policy,
) -> bool {
    let busy = instances.map_or(0, |it| it.busy(call.concurrency));
    busy < policy.instances_per_host && !host.is_drained && may_ever_run(call, name, host)
}

/// Whether a host has the memory for a call while others take nothing.
pub(crate) fn may_ever_run(call: &Call, name: &HostName, host: &Host) -> bool {
    call.only.as_ref().is_none_or(|only| only == name) && host.most >= call.memory
}

fn has_slot(
    call: &Call,
    host: &Host,
    instances: &Instances,
    policy: &Policy,
    now: Duration,
) -> bool {
    // The memory of an idle instance is free for others until a call uses it again.
    let has_idle = || {
        instances.idle(call.concurrency, now) > 0
            && instances.busy(call.concurrency) < policy.instances_per_host
            && host.left() >= call.memory
    };
    // A host that refuses may have refused the start of the instance that would be shared.
    let has_shared = || !host.is_full && instances.has_shared_slot(call.concurrency);
    !host.is_drained && (has_shared() || has_idle())
}

fn may_start(call: &Call, host: &Host, instances: Option<&Instances>, policy: &Policy) -> bool {
    let busy = instances.map_or(0, |it| it.busy(call.concurrency));
    busy < policy.instances_per_host && host.fits(call.memory)
}

/// What free instances are compared by; the least is taken.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SlotRank<'a> {
    overload: u64,
    /// Control's own host first, as no network is between.
    is_far: bool,
    /// The one that was used last, so that those of other hosts are idle for long enough to be given
    /// up.
    last: Reverse<Duration>,
    name: &'a HostName,
}

/// The free instance that is taken, on a core that is free too if it needs one.
fn with_slot<'a>(
    on: &OnHosts,
    rank: impl Fn(&HostName) -> Option<SlotRank<'a>>,
    (policy, needs_core): (&Policy, bool),
) -> Option<SlotRank<'a>> {
    if !needs_core {
        return on.free().filter_map(rank).min();
    }
    let with_core = |name: &HostName| rank(name).filter(|rank| rank.overload == 0);
    // All others are far, so that the first of them in the order of their last use is the least.
    policy.near.as_ref().and_then(with_core).or_else(|| on.free().find_map(with_core))
}

fn slot_rank<'a>(
    call: &Call,
    (name, host): (&'a HostName, &Host),
    instances: &Instances,
    policy: &Policy,
    now: Duration,
) -> Option<SlotRank<'a>> {
    // Another instance of a host that is full may be evicted meanwhile: it is asked all the same.
    if !has_slot(call, host, instances, policy, now) {
        return None;
    }
    // A call that shares an instance shares its core.
    let is_shared = instances.has_shared_slot(call.concurrency);
    Some(SlotRank {
        overload: if is_shared { 0 } else { overload(call, host) },
        is_far: policy.near.as_ref() != Some(name),
        last: Reverse(instances.last()),
        name,
    })
}

fn with_room<'a>(
    call: &Call,
    hosts: impl Iterator<Item = (&'a HostName, &'a Host)>,
    on: Option<&OnHosts>,
    policy: &Policy,
) -> Option<Rank<'a>> {
    let open = hosts.filter_map(|(name, host)| {
        let instances = on.and_then(|on| on.get(name));
        may_start(call, host, instances, policy).then(|| rank(call, name, host, instances))
    });
    open.min()
}

/// Load of the cores in thousandths, if they do not suffice for a further instance; else 0.
fn overload(call: &Call, host: &Host) -> u64 {
    let taken = host.cpu_millis + u64::from(call.cpu_millis);
    let cores = host.room.cpu_millis.max(1);
    if taken <= cores { 0 } else { taken * 1000 / cores }
}

fn rank<'a>(
    call: &Call,
    name: &'a HostName,
    host: &Host,
    instances: Option<&Instances>,
) -> Rank<'a> {
    let held = call.image.as_ref().and_then(|image| host.images.get(image));
    let lacks = match (instances, held) {
        (Some(_), _) => Lacks::Nothing,
        (None, Some(_)) => Lacks::Code,
        (None, None) => Lacks::Image,
    };
    Rank {
        overload: overload(call, host),
        lacks,
        depth: held.and_then(|held| held.depth).unwrap_or(u32::MAX),
        inner: host.inner,
        memory_left: host.left(),
        name,
    }
}
