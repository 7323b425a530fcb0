//! The instances of one function on all hosts, in two orders: hosts with a free instance, and hosts
//! that could start a new one.
//!
//! Invariant: once [`OnHosts::settle_slots`] and [`OnHosts::settle_starts`] were called for each
//! host that has changed, every host with an instance for a call is in the first order, and every
//! host of the function that may get a further instance is in the second one. Time alone changes
//! nothing: a host whose instance is kept no longer may still be in the first order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use snowmelt_types::Digest;

use super::directory::{HostDirectory, HostEntry};
use super::host::HostUsage;
use super::instances::Instances;
use super::load::{Core, CoreLoad};
use super::order::{HostKey, Ranked};
use super::rooms::{depth_of, place_of};
use crate::requests::CallDemand;

/// The instances of one function, by the numbers of their hosts.
#[derive(Debug)]
pub(crate) struct OnHosts {
    image: Option<Digest>,
    /// The memory limit of an instance in bytes.
    memory: u64,
    /// The greatest number of instances on a host.
    most: u32,
    /// The longest time for which an instance without calls is kept.
    idle: Duration,
    by_host: BTreeMap<u32, OnHost>,
    /// All hosts that may have a free instance. This set is always up to date.
    free: BTreeSet<FreeInstance>,
    /// The free instances, by the core that a call gets there.
    slots: BTreeMap<Core, BTreeSet<FreeInstance>>,
    starts: Ranked,
    /// The hosts with as many instances as they may have.
    full: BTreeSet<u32>,
}

/// A free instance: the time at which an instance of its host was last used, the position of the
/// host's name, and the host's number. The one that was used last comes first.
type FreeInstance = (Reverse<Duration>, u64, u32);

/// The instances on a host, and its place in the two orders.
#[derive(Debug, Default)]
struct OnHost {
    instances: Instances,
    free: Option<FreeInstance>,
    slot: Option<(Core, FreeInstance)>,
    start: Option<(CoreLoad, HostKey)>,
}

impl OnHosts {
    /// Makes an empty set for the function of a call, with at most `most` instances on a host.
    pub fn new(call: &CallDemand, most: u32) -> Self {
        Self {
            image: call.image.clone(),
            memory: call.memory,
            most,
            idle: Duration::ZERO,
            by_host: BTreeMap::new(),
            free: BTreeSet::new(),
            slots: BTreeMap::new(),
            starts: Ranked::default(),
            full: BTreeSet::new(),
        }
    }

    pub fn get(&self, host: u32) -> Option<&Instances> {
        self.by_host.get(&host).map(|on| &on.instances)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Instances)> {
        self.by_host.iter().map(|(host, on)| (*host, &on.instances))
    }

    pub fn is_empty(&self) -> bool {
        self.by_host.is_empty()
    }

    /// The hosts that may have a free instance, the one that was used last first.
    pub fn free(&self) -> impl ExactSizeIterator<Item = u32> {
        self.free.iter().map(|(.., host)| *host)
    }

    /// The kinds of cores on which a call may find a free instance.
    pub fn cores(&self) -> impl Iterator<Item = Core> {
        self.slots.keys().copied()
    }

    /// The hosts that may have a free instance on a core of this kind, the one that was used last
    /// first.
    pub fn slots(&self, core: Core, now: Duration) -> impl Iterator<Item = u32> {
        let slots = self.slots.get(&core).into_iter().flatten();
        // Who shares an instance needs no idle one. All after the first that is over are over too.
        let is_kept =
            move |last: Duration| core == Core::Shared || now.saturating_sub(last) < self.idle;
        let kept = slots.take_while(move |(Reverse(last), ..)| is_kept(*last));
        kept.map(|(.., host)| *host)
    }

    /// The hosts that have instances of the function, or had some lately, and may get a further
    /// one.
    pub fn starts(&self) -> &Ranked {
        &self.starts
    }

    /// The hosts with as many instances as they may have.
    pub fn full(&self) -> impl Iterator<Item = u32> {
        self.full.iter().copied()
    }

    /// Counts a call that begins on a host. `order` is the position of the host's name. Returns how
    /// many new instances the call needs.
    pub fn begin(&mut self, host: u32, order: u64, call: &CallDemand) -> u32 {
        self.idle = self.idle.max(call.idle);
        let instances = &mut self.by_host.entry(host).or_default().instances;
        let before = instances.busy(call.concurrency);
        instances.begin(call.concurrency, call.idle);
        let new = instances.busy(call.concurrency) - before;
        self.note(host, order);
        new
    }

    /// Counts a call that has ended on a host, which reports `count` instances. Returns by how much
    /// the number of instances with calls went down. `None` if the host has none of the function.
    pub fn end(
        &mut self,
        host: u32,
        order: u64,
        call: &CallDemand,
        count: Option<u32>,
        now: Duration,
    ) -> Option<u32> {
        let instances = &mut self.by_host.get_mut(&host)?.instances;
        let before = instances.busy(call.concurrency);
        instances.end(count, now);
        let less = before - instances.busy(call.concurrency);
        let is_over = instances.is_over(now);
        self.note(host, order);
        if is_over {
            self.remove(host);
        }
        Some(less)
    }

    /// Takes the new order numbers of all names.
    pub fn order_anew(&mut self, hosts: &HostDirectory) {
        let ids: Vec<u32> = self.by_host.keys().copied().collect();
        let entries = ids.into_iter().filter_map(|id| Some((id, hosts.by_id(id)?.order)));
        entries.for_each(|(id, order)| self.note(id, order));
    }

    pub fn remove(&mut self, host: u32) {
        let Some(on) = self.by_host.remove(&host) else { return };
        if let Some(slot) = on.free {
            self.free.remove(&slot);
        }
        self.move_slot(on.slot, None);
        self.starts.replace(on.start, None);
        self.full.remove(&host);
    }

    /// Forgets instances that hosts may have ended meanwhile.
    pub fn sweep(&mut self, now: Duration) {
        let over = self.by_host.iter().filter(|(_, on)| on.instances.is_over(now));
        let over: Vec<u32> = over.map(|(host, _)| *host).collect();
        over.into_iter().for_each(|host| self.remove(host));
    }

    /// Updates the order of free instances after a change of a host. Returns false if the host has
    /// no instances of the function.
    pub fn settle_slots(&mut self, id: u32, host: &HostUsage, order: u64) -> bool {
        let most = self.most;
        let memory = self.memory;
        let Some(on) = self.by_host.get_mut(&id) else { return false };
        let core = core(&on.instances, host, most, memory);
        let after = core.map(|core| (core, (Reverse(on.instances.last()), order, id)));
        let before = std::mem::replace(&mut on.slot, after);
        if before != after {
            self.move_slot(before, after);
        }
        true
    }

    /// Updates the order of hosts for new instances after a change of a host.
    pub fn settle_starts(&mut self, id: u32, entry: &HostEntry) {
        let Some(on) = self.by_host.get_mut(&id) else { return };
        let depth = depth_of(&entry.host, self.image.as_ref());
        let after = place_of(id, entry, depth).filter(|_| !self.full.contains(&id));
        let before = std::mem::replace(&mut on.start, after);
        self.starts.replace(before, after);
    }

    fn move_slot(
        &mut self,
        before: Option<(Core, FreeInstance)>,
        after: Option<(Core, FreeInstance)>,
    ) {
        if let Some((core, slot)) = before
            && let Some(slots) = self.slots.get_mut(&core)
        {
            slots.remove(&slot);
            if slots.is_empty() {
                self.slots.remove(&core);
            }
        }
        if let Some((core, slot)) = after {
            self.slots.entry(core).or_default().insert(slot);
        }
    }

    /// Notes whether a host may have a free instance, and whether it may get a further one.
    fn note(&mut self, host: u32, order: u64) {
        let Some(on) = self.by_host.get_mut(&host) else { return };
        let instances = &on.instances;
        let may_take = instances.may_be_idle() || instances.has_shared_slot_now();
        let after = may_take.then(|| (Reverse(instances.last()), order, host));
        let is_full = instances.busy_now() >= self.most;
        let before = std::mem::replace(&mut on.free, after);
        if before != after {
            if let Some(slot) = before {
                self.free.remove(&slot);
            }
            self.free.extend(after);
        }
        match is_full {
            true => self.full.insert(host),
            false => self.full.remove(&host),
        };
    }
}

/// The core that a call gets on a free instance, if the host has a free instance as long as its
/// instances are kept.
fn core(instances: &Instances, host: &HostUsage, most: u32, memory: u64) -> Option<Core> {
    let is_shared = instances.has_shared_slot_now();
    let has_idle = instances.may_be_idle() && instances.busy_now() < most && host.left() >= memory;
    let is_free = has_idle || (is_shared && !host.is_full);
    let core = || if is_shared { Core::Shared } else { Core::Own(CoreLoad::of(host)) };
    (is_free && !host.is_drained).then(core)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use snowmelt_types::HostName;

    use super::*;
    use crate::hosts::host::HostRoom;
    use crate::tests::call;

    #[derive(Clone, Debug)]
    enum Step {
        Begin(u8),
        End(u8, Option<u32>),
        Remove(u8),
        Sweep,
    }

    fn step() -> impl Strategy<Value = Step> {
        let host = || 0..6_u8;
        prop_oneof![
            4 => host().prop_map(Step::Begin),
            4 => (host(), prop::option::of(0..4_u32)).prop_map(|(host, count)| Step::End(host, count)),
            1 => host().prop_map(Step::Remove),
            1 => Just(Step::Sweep),
        ]
    }

    fn hosts() -> HostDirectory {
        let mut hosts = HostDirectory::default();
        for number in 0..6 {
            let name = HostName::try_from(format!("host-{number}")).unwrap();
            let room = HostRoom { memory: 1 << 40, cpu_millis: 1000, ..HostRoom::default() };
            hosts.insert(name, HostUsage::new(room));
        }
        hosts
    }

    proptest! {
        #[test]
        fn the_order_has_exactly_the_hosts_that_may_take_a_call(
            each in 1..4_u32,
            steps in prop::collection::vec((step(), 0..30_u64), 1..100),
        ) {
            let call = CallDemand { concurrency: each, ..call("f", 1) };
            let mut on = OnHosts::new(&call, 3);
            let mut now = Duration::ZERO;
            let hosts = hosts();
            let order = |host: u8| hosts.by_id(host.into()).unwrap().order;
            for (step, seconds) in steps {
                now += Duration::from_secs(seconds);
                match step {
                    // No host is given more.
                    Step::Begin(host) if on.full().any(|full| full == u32::from(host)) => {}
                    Step::Begin(host) => {
                        on.begin(host.into(), order(host), &call);
                    }
                    Step::End(host, count) => {
                        on.end(host.into(), order(host), &call, count, now);
                    }
                    Step::Remove(host) => on.remove(host.into()),
                    Step::Sweep => on.sweep(now),
                }
                for id in 0..6 {
                    let entry = hosts.by_id(id).unwrap();
                    on.settle_slots(id, &entry.host, entry.order);
                    on.settle_starts(id, entry);
                }
                let mut expected: Vec<_> = on
                    .iter()
                    .filter(|(_, it)| {
                        let is_idle = it.idle(each, now) > 0 && it.busy(each) < 3;
                        is_idle || it.has_shared_slot(each)
                    })
                    .map(|(host, it)| (!it.has_shared_slot(each), Reverse(it.last()), host))
                    .collect();
                expected.sort_unstable();
                let found: Vec<_> = on.cores().flat_map(|core| on.slots(core, now)).collect();
                prop_assert!(found.iter().eq(expected.iter().map(|(.., host)| host)));
                let may_take = on.iter().filter(|(_, it)| {
                    it.may_be_idle() || it.has_shared_slot(each)
                });
                let mut expected: Vec<_> =
                    may_take.map(|(host, it)| (Reverse(it.last()), host)).collect();
                expected.sort_unstable();
                prop_assert!(on.free().eq(expected.iter().map(|(_, host)| *host)));
                let full = on.iter().filter(|(_, it)| it.busy(each) >= 3).map(|(host, _)| host);
                prop_assert!(on.full().eq(full));
            }
        }
    }
}
