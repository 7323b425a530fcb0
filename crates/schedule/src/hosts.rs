//! The hosts by name, with a number and an order for each, and which of them have changed.
//!
//! Invariant: what may have changed of a host is in the list of each follower until that has looked.
//! The order of two hosts is that of their names.

use std::collections::{BTreeMap, BTreeSet};

use snowmelt_types::{Digest, HostName};

use crate::host::{Host, HostRoom};

/// Who keeps hosts in an order of its own, and brings it up to date when it needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Follower {
    /// Free instances of functions.
    Slots,
    /// Hosts that have a function.
    Starts,
    /// All hosts, and those of images.
    Rooms,
}

const FOLLOWERS: [Follower; 3] = [Follower::Slots, Follower::Starts, Follower::Rooms];

/// Between the orders of two hosts, at first: so many names find a place between them.
const GAP: u64 = 1 << 32;

/// All hosts.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    by_name: BTreeMap<HostName, u32>,
    /// By their numbers.
    entries: Vec<Option<Entry>>,
    vacant: Vec<u32>,
    /// By the most memory that each has reported.
    by_most: BTreeSet<(u64, u32)>,
    changed: [Vec<u32>; FOLLOWERS.len()],
}

/// A host.
#[derive(Debug)]
pub(crate) struct Entry {
    pub name: HostName,
    /// That of its name.
    pub order: u64,
    pub host: Host,
    /// Functions that have instances here, or had some.
    pub functions: Vec<Digest>,
    /// In whose lists it is.
    listed: [bool; FOLLOWERS.len()],
}

impl Hosts {
    pub fn get(&self, name: &HostName) -> Option<&Host> {
        self.by_id(self.id(name)?).map(|entry| &entry.host)
    }

    /// A host that is about to change.
    pub fn get_mut(&mut self, name: &HostName) -> Option<&mut Host> {
        let id = self.id(name)?;
        self.has_changed(id);
        self.entry_mut(id).map(|entry| &mut entry.host)
    }

    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    pub fn contains(&self, name: &HostName) -> bool {
        self.by_name.contains_key(name)
    }

    /// The number of a host, which is its own as long as it is there.
    pub fn id(&self, name: &HostName) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// The number of a host, and the order of its name.
    pub fn number(&self, name: &HostName) -> Option<(u32, u64)> {
        let id = self.id(name)?;
        Some((id, self.by_id(id)?.order))
    }

    pub fn by_id(&self, id: u32) -> Option<&Entry> {
        self.entries.get(id as usize)?.as_ref()
    }

    /// A host of which nothing changes that an order of hosts depends on.
    pub fn entry_mut(&mut self, id: u32) -> Option<&mut Entry> {
        self.entries.get_mut(id as usize)?.as_mut()
    }

    /// Their numbers.
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        self.by_name.values().copied()
    }

    /// In the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&HostName, &Host)> {
        let entries = self.by_name.iter().filter_map(|(name, id)| Some((name, self.by_id(*id)?)));
        entries.map(|(name, entry)| (name, &entry.host))
    }

    pub fn values(&self) -> impl Iterator<Item = &Host> {
        self.iter().map(|(_, host)| host)
    }

    /// Changes all hosts of which this is true.
    pub fn change_all(&mut self, which: impl Fn(&Host) -> bool, mut change: impl FnMut(&mut Host)) {
        for id in 0..self.entries.len() as u32 {
            if self.by_id(id).is_some_and(|entry| which(&entry.host)) {
                self.has_changed(id);
                if let Some(entry) = self.entry_mut(id) {
                    change(&mut entry.host);
                }
            }
        }
    }

    /// Takes the next report of a host; false if it is not known.
    pub fn report(&mut self, name: &HostName, room: HostRoom) -> bool {
        let Some(id) = self.id(name) else { return false };
        self.has_changed(id);
        let Some(entry) = self.entry_mut(id) else { return false };
        let before = entry.host.most;
        entry.host.report(room);
        let after = entry.host.most;
        if before != after {
            self.by_most.remove(&(before, id));
            self.by_most.insert((after, id));
        }
        true
    }

    /// Adds a host that is not known; true if the orders of others are others now.
    pub fn insert(&mut self, name: HostName, host: Host) -> bool {
        let id = self.vacant.pop().unwrap_or(self.entries.len() as u32);
        if id as usize == self.entries.len() {
            self.entries.push(None);
        }
        let order = self.order_for(&name);
        self.by_most.insert((host.most, id));
        self.by_name.insert(name.clone(), id);
        let listed = [false; FOLLOWERS.len()];
        let entry = Entry { name, order: order.unwrap_or(0), host, functions: Vec::new(), listed };
        self.entries[id as usize] = Some(entry);
        self.has_changed(id);
        if order.is_none() {
            self.order_anew();
        }
        order.is_none()
    }

    /// Its number, which another host may get.
    pub fn remove(&mut self, name: &HostName) -> Option<u32> {
        let id = self.by_name.remove(name)?;
        self.has_changed(id);
        if let Some(entry) = self.entries[id as usize].take() {
            self.by_most.remove(&(entry.host.most, id));
        }
        self.vacant.push(id);
        Some(id)
    }

    /// The hosts that have reported at least so much memory at a time, those with less first.
    pub fn with_most(&self, memory: u64) -> impl Iterator<Item = &Entry> {
        self.by_most.range((memory, 0)..).filter_map(|(_, id)| self.by_id(*id))
    }

    /// The hosts that never had so much memory.
    pub fn smaller_than(&self, memory: u64) -> impl Iterator<Item = u32> {
        self.by_most.range(..(memory, 0)).map(|(_, id)| *id)
    }

    /// A function has instances on a host.
    pub fn has_function(&mut self, id: u32, function: &Digest) {
        if let Some(entry) = self.entry_mut(id)
            && !entry.functions.contains(function)
        {
            entry.functions.push(function.clone());
        }
    }

    /// Forgets the functions that have no instances on a host any more.
    pub fn retain_functions(&mut self, has: impl Fn(u32, &Digest) -> bool) {
        for (id, entry) in (0..).zip(&mut self.entries) {
            if let Some(entry) = entry {
                entry.functions.retain(|function| has(id, function));
            }
        }
    }

    /// What may have changed of a host is to be looked at.
    pub fn has_changed(&mut self, id: u32) {
        let Self { entries, changed, .. } = self;
        let Some(Some(entry)) = entries.get_mut(id as usize) else { return };
        for (list, listed) in changed.iter_mut().zip(&mut entry.listed) {
            if !std::mem::replace(listed, true) {
                list.push(id);
            }
        }
    }

    /// The hosts that may have changed since this follower looked last. Some may be gone.
    pub fn changed(&mut self, follower: Follower) -> Vec<u32> {
        let changed = std::mem::take(&mut self.changed[follower as usize]);
        for id in &changed {
            if let Some(entry) = self.entry_mut(*id) {
                entry.listed[follower as usize] = false;
            }
        }
        changed
    }

    /// An order between those of the names beside it, if there is one.
    fn order_for(&self, name: &HostName) -> Option<u64> {
        let order = |(_, id): (&HostName, &u32)| self.by_id(*id).map(|entry| entry.order);
        let before = self.by_name.range::<HostName, _>(..name).next_back().and_then(order);
        let after = self.by_name.range::<HostName, _>(name..).next().and_then(order);
        match (before, after) {
            (None, None) => Some(GAP),
            (Some(before), None) => before.checked_add(GAP).filter(|order| *order < u64::MAX),
            (before, Some(after)) => {
                let before = before.unwrap_or(0);
                let order = before + (after - before) / 2;
                (order > before).then_some(order)
            }
        }
    }

    /// Gives all hosts orders with room between them.
    fn order_anew(&mut self) {
        let ids: Vec<u32> = self.by_name.values().copied().collect();
        for (number, id) in (1..).zip(ids) {
            if let Some(entry) = self.entry_mut(id) {
                entry.order = number * GAP;
            }
            self.has_changed(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_order_of_hosts_is_that_of_their_names(
            // Names of two letters halve the place between their neighbours again and again.
            names in prop::collection::vec(("x[ab]{0,60}", any::<bool>()), 1..120),
        ) {
            let mut hosts = Hosts::default();
            for (name, is_added) in names {
                let name = HostName::try_from(name).unwrap();
                match is_added && !hosts.contains(&name) {
                    true => {
                        hosts.insert(name, Host::new(HostRoom::default()));
                    }
                    false => {
                        hosts.remove(&name);
                    }
                }
                let entries = hosts.by_name.values().map(|id| hosts.by_id(*id).unwrap());
                let orders: Vec<_> = entries.map(|entry| entry.order).collect();
                prop_assert!(orders.is_sorted_by(|one, other| one < other), "{orders:?}");
                prop_assert_eq!(hosts.by_most.len(), orders.len());
            }
        }
    }

    #[test]
    fn names_between_two_others_are_ordered_anew_when_there_is_no_place() {
        let mut hosts = Hosts::default();
        for length in (1..60).rev() {
            hosts.insert(
                HostName::try_from("a".repeat(length)).unwrap(),
                Host::new(HostRoom::default()),
            );
        }
        let entries = hosts.by_name.values().map(|id| hosts.by_id(*id).unwrap().order);
        assert!(entries.is_sorted_by(|one, other| one < other));
        assert_eq!(hosts.changed(Follower::Rooms).len(), 59);
        assert!(hosts.changed(Follower::Rooms).is_empty());
    }
}
