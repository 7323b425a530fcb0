//! The choice of the host for a call.
//!
//! A free instance is taken first, if a core is free for it: its start is the cheapest. A new
//! instance on a host with a free core comes next, unless that host would have to read an image
//! first. (A call on cores that others use may take several times as long, a start does not.) If
//! the call has `near_first` and control's own host has a free core, that host comes before all
//! others.
//!
//! Few hosts are compared one by one. Among many hosts, only candidates are looked at: the hosts
//! are kept in order already (`instance_orders`, `rooms`).

use std::cmp::Reverse;
use std::time::Duration;

use snowmelt_types::HostName;

use super::directory::{HostDirectory, HostEntry};
use super::host::HostUsage;
use super::instance_orders::OnHosts;
use super::instances::Instances;
use super::load::{Core, CoreLoad};
use super::order::{HostKey, Needs, Ranked};
use super::rooms::{HostOrders, depth_of};
use crate::requests::{CallDemand, SchedulerPolicy};

/// The key by which hosts are compared for a new instance; the host with the least key is taken.
///
/// Hosts with a free core come first: a host whose cores are all taken counts as full as long as
/// another host is not. Among hosts with a free core, the order is: the host with most of the
/// function's parts first, then the host with the better places in trees, then the fullest host
/// with room for the instance, so that the emptiest hosts become free.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// The load of the host's cores in thousandths if they are all taken, else 0.
    overload: u64,
    lacks: Lacks,
    place: HostKey,
}

/// The part of a function that a host lacks before it can start its first instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lacks {
    /// The host has instances of the function, or had some lately.
    Nothing,
    /// The host has the image or the packages of the function, because it ran another function with
    /// them.
    Code,
    Image,
}

/// The key by which free instances are compared; the instance with the least key is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SlotRank {
    overload: u64,
    /// Whether the host is another one than control's own. Control's own host comes first, as no
    /// network is between.
    is_far: bool,
    /// The time at which the instance was used last. The latest comes first, so that instances of
    /// other hosts are idle for long enough to be ended.
    last: Reverse<Duration>,
    order: u64,
    id: u32,
}

/// The set of hosts that a search for a new instance may choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SearchReach {
    /// Hosts with a free core that have the function.
    Here,
    /// Hosts with a free core that have at least the function's image.
    Near,
    /// All hosts.
    Any,
}

/// The search for a host that runs a call now.
pub(crate) struct HostSearch<'a> {
    pub call: &'a CallDemand,
    pub on: Option<&'a OnHosts>,
    pub hosts: &'a HostDirectory,
    pub rooms: &'a HostOrders,
    pub policy: &'a SchedulerPolicy,
    /// The starved call for which free room is kept, with the instances of its function: no other
    /// call starts on a host where this one could start.
    pub kept: Option<(&'a CallDemand, Option<&'a OnHosts>)>,
    pub now: Duration,
    /// The greatest number of hosts that are compared one by one, without the orders.
    pub few: usize,
}

impl HostSearch<'_> {
    /// Control's own host, if the call prefers it and it has a free core.
    pub fn own(&self) -> Option<u32> {
        let own = self.policy.near.as_ref().filter(|_| self.call.near_first)?;
        let id = self.hosts.id(own)?;
        let is_asked = self.call.only.as_ref().is_none_or(|only| only == own);
        let slot = self.on.filter(|_| is_asked).and_then(|on| self.slot_rank(on, id));
        let has_slot = slot.is_some_and(|rank| rank.overload == 0);
        (has_slot || self.rank(id).is_some_and(|rank| rank.overload == 0)).then_some(id)
    }

    /// Returns the same host as [`Self::slot`] if a look at few hosts suffices to tell. The orders
    /// by load are not read, so they need not be up to date. The outer `None` means that the orders
    /// are needed.
    pub fn slot_of_few(&self, needs_core: bool) -> Option<Option<u32>> {
        let Some(on) = self.on else { return Some(None) };
        let is_near = |rank: &SlotRank| rank.overload == 0;
        let on_host = |name: &HostName| self.slot_rank(on, self.hosts.id(name)?);
        if let Some(only) = &self.call.only {
            let rank = on_host(only).filter(|rank| !needs_core || is_near(rank));
            return Some(rank.map(|rank| rank.id));
        }
        let are_few = on.free().len() <= self.few;
        let mut ranks = on.free().take(self.few).filter_map(|id| self.slot_rank(on, id));
        if !needs_core {
            return are_few.then(|| ranks.min().map(|rank| rank.id));
        }
        let near = self.policy.near.as_ref().and_then(on_host).filter(is_near);
        // All others are far, so that the first of them in the order of their last use is the
        // least.
        let first = near.or_else(|| ranks.find(is_near)).map(|rank| rank.id);
        (are_few || first.is_some()).then_some(first)
    }

    /// Returns the host whose free instance the call takes. With `needs_core`, only hosts that have
    /// a free core for the call count.
    pub fn slot(&self, needs_core: bool) -> Option<u32> {
        let on = self.on?;
        let may_take = |rank: &SlotRank| !needs_core || rank.overload == 0;
        let on_host = |name: &HostName| self.slot_rank(on, self.hosts.id(name)?).filter(may_take);
        if let Some(only) = &self.call.only {
            return on_host(only).map(|rank| rank.id);
        }
        let mut best = self.policy.near.as_ref().and_then(on_host);
        let cores = on.cores().map(|core| (core.over(self.call.cpu_millis), core));
        let mut cores: Vec<_> = cores.filter(|(over, _)| *over == 0 || !needs_core).collect();
        cores.sort_unstable();
        for equal in cores.chunk_by(|one, other| one.0 == other.0) {
            // Control's own host comes first among equals.
            if best.is_some_and(|best| best.overload <= equal[0].0) {
                break;
            }
            let first = equal.iter().filter_map(|(_, core)| self.first_slot(on, *core)).min();
            if first.is_some() {
                best = best.into_iter().chain(first).min();
                break;
            }
        }
        best.map(|rank| rank.id)
    }

    /// Whether a host for a new instance is found without the orders of hosts.
    pub fn needs_no_orders(&self) -> bool {
        self.call.only.is_some() || self.hosts.len() <= self.few
    }

    /// Returns the host on which the call gets a new instance.
    pub fn start(&self, reach: SearchReach) -> Option<u32> {
        let rank = match self.few() {
            Some(few) => {
                let least = few.into_iter().filter_map(|id| self.rank(id)).min();
                least.filter(|rank| self.is_within(rank, reach))
            }
            None => self.least(reach),
        };
        rank.map(|rank| rank.place.id)
    }

    fn first_slot(&self, on: &OnHosts, core: Core) -> Option<SlotRank> {
        on.slots(core, self.now).find_map(|id| self.slot_rank(on, id))
    }

    fn slot_rank(&self, on: &OnHosts, id: u32) -> Option<SlotRank> {
        let instances = on.get(id)?;
        let entry = self.hosts.by_id(id)?;
        // Another instance of a host that is full may be evicted meanwhile: it is asked all the
        // same.
        if !has_slot(self.call, &entry.host, instances, self.policy, self.now) {
            return None;
        }
        // A call that shares an instance shares its core.
        let is_shared = instances.has_shared_slot(self.call.concurrency);
        let core = if is_shared { Core::Shared } else { Core::Own(CoreLoad::of(&entry.host)) };
        Some(SlotRank {
            overload: core.over(self.call.cpu_millis),
            is_far: self.policy.near.as_ref() != Some(&entry.name),
            last: Reverse(instances.last()),
            order: entry.order,
            id,
        })
    }

    /// The hosts to compare one by one for a new instance. `None` if all hosts may be asked and are
    /// too many for that.
    fn few(&self) -> Option<Vec<u32>> {
        if let Some(only) = &self.call.only {
            return Some(self.hosts.id(only).into_iter().collect());
        }
        if self.hosts.len() <= self.few {
            return Some(self.hosts.ids().collect());
        }
        let (kept, on) = self.kept.filter(|(kept, _)| kept.only.is_none())?;
        // It could start nearly everywhere: all others are too small for it, or have as many of its
        // instances as they may have.
        let full = on.into_iter().flat_map(OnHosts::full);
        Some(self.hosts.smaller_than(kept.memory).chain(full).collect())
    }

    fn is_within(&self, rank: &Rank, reach: SearchReach) -> bool {
        let has_all = self.call.image.is_none() || rank.lacks != Lacks::Image;
        match reach {
            SearchReach::Here => rank.overload == 0 && rank.lacks == Lacks::Nothing,
            SearchReach::Near => rank.overload == 0 && has_all,
            SearchReach::Any => true,
        }
    }

    /// Returns the least host of all orders. A host that has the function is also in the order of
    /// its image and in that of all hosts, where it comes later than in the order of the function:
    /// so the least host of all orders is the least of all hosts.
    fn least(&self, reach: SearchReach) -> Option<Rank> {
        let CallDemand { memory, cpu_millis, ref image, .. } = *self.call;
        let needs = Needs { memory, cpu_millis, free_core: reach != SearchReach::Any };
        let first = |lacks, ranked: Option<&Ranked>| {
            let (overload, place) = ranked?.first(needs, |id| self.rank(id).is_some())?;
            Some(Rank { overload, lacks, place })
        };
        let here = first(Lacks::Nothing, self.on.map(OnHosts::starts));
        if reach == SearchReach::Here {
            return here;
        }
        let code = first(Lacks::Code, image.as_ref().and_then(|image| self.rooms.with(image)));
        let needs_image = reach == SearchReach::Near && image.is_some();
        let all = first(Lacks::Image, Some(self.rooms.all()).filter(|_| !needs_image));
        [here, code, all].into_iter().flatten().min()
    }

    /// Returns the key of a host. `None` if the host cannot start an instance now.
    fn rank(&self, id: u32) -> Option<Rank> {
        let entry = self.hosts.by_id(id)?;
        let HostEntry { name, order, host, .. } = entry;
        let instances = self.on.and_then(|on| on.get(id));
        let is_asked = self.call.only.as_ref().is_none_or(|only| only == name);
        if !is_asked
            || self.is_kept(id, entry)
            || !may_start(self.call, host, instances, self.policy)
        {
            return None;
        }
        let image = self.call.image.as_ref();
        let lacks = match (instances, image.and_then(|image| host.images.get(image))) {
            (Some(_), _) => Lacks::Nothing,
            (None, Some(_)) => Lacks::Code,
            (None, None) => Lacks::Image,
        };
        let depth = depth_of(host, image);
        let left = host.left();
        let place = HostKey { depth, inner: host.inner, left, order: *order, id };
        Some(Rank { overload: CoreLoad::of(host).over(self.call.cpu_millis), lacks, place })
    }

    fn is_kept(&self, id: u32, entry: &HostEntry) -> bool {
        self.kept.is_some_and(|(kept, on)| {
            could_start(kept, &entry.name, &entry.host, on.and_then(|on| on.get(id)), self.policy)
        })
    }
}

/// Whether a call could have a new instance on a host if enough memory became free there.
pub(crate) fn could_start(
    call: &CallDemand,
    name: &HostName,
    host: &HostUsage,
    instances: Option<&Instances>,
    policy: &SchedulerPolicy,
) -> bool {
    let busy = instances.map_or(0, |instance| instance.busy(call.concurrency));
    busy < policy.instances_per_host && !host.is_drained && may_ever_run(call, name, host)
}

/// Whether a host has enough memory for a call if nothing else runs on it.
pub(crate) fn may_ever_run(call: &CallDemand, name: &HostName, host: &HostUsage) -> bool {
    call.only.as_ref().is_none_or(|only| only == name) && host.most >= call.memory
}

fn has_slot(
    call: &CallDemand,
    host: &HostUsage,
    instances: &Instances,
    policy: &SchedulerPolicy,
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

fn may_start(
    call: &CallDemand,
    host: &HostUsage,
    instances: Option<&Instances>,
    policy: &SchedulerPolicy,
) -> bool {
    let busy = instances.map_or(0, |instance| instance.busy(call.concurrency));
    busy < policy.instances_per_host && host.fits(call.memory)
}
