//! The hosts by name. Each has a number, a position in the order of names, and marks for those who
//! need to see its changes.
//!
//! Invariant: a host that may have changed is in the list of each follower until that follower has
//! looked. Hosts are ordered like their names.

use std::collections::{BTreeMap, BTreeSet};

use snowmelt_types::{Digest, HostName};

use super::host::{HostRoom, HostUsage};

/// A part of the scheduler that keeps hosts in an order of its own, and brings that order up to
/// date when it needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Follower {
    /// The order of free instances of functions.
    Slots,
    /// The order of hosts that have a function.
    Starts,
    /// The orders of all hosts, and of hosts that hold an image.
    Rooms,
}

const FOLLOWERS: [Follower; 3] = [Follower::Slots, Follower::Starts, Follower::Rooms];

/// The distance between the order numbers of two hosts at first: as many names fit between them.
const GAP: u64 = 1 << 32;

/// The directory of all hosts of the scheduler.
#[derive(Debug, Default)]
pub(crate) struct HostDirectory {
    by_name: BTreeMap<HostName, u32>,
    /// The hosts by their numbers. `None` for a number that no host has now.
    entries: Vec<Option<HostEntry>>,
    vacant: Vec<u32>,
    /// The hosts by the most memory that each has reported.
    by_most: BTreeSet<(u64, u32)>,
    changed: [Vec<u32>; FOLLOWERS.len()],
}

/// A host with its name and its marks.
#[derive(Debug)]
pub(crate) struct HostEntry {
    pub name: HostName,
    /// The position of the host's name in the order of all names.
    pub order: u64,
    pub host: HostUsage,
    /// The functions that have instances on the host, or had some.
    pub functions: Vec<Digest>,
    /// For each follower, whether the host is in its list of changed hosts.
    listed: [bool; FOLLOWERS.len()],
}

impl HostDirectory {
    pub fn get(&self, name: &HostName) -> Option<&HostUsage> {
        self.by_id(self.id(name)?).map(|entry| &entry.host)
    }

    /// Returns a host that is about to change, and marks it as changed.
    pub fn get_mut(&mut self, name: &HostName) -> Option<&mut HostUsage> {
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

    /// The number of a host, which no other host has while this one is known.
    pub fn id(&self, name: &HostName) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// The number of a host, and the position of its name.
    pub fn number(&self, name: &HostName) -> Option<(u32, u64)> {
        let id = self.id(name)?;
        Some((id, self.by_id(id)?.order))
    }

    pub fn by_id(&self, id: u32) -> Option<&HostEntry> {
        self.entries.get(id as usize)?.as_ref()
    }

    /// Returns a host for a change on which no order of hosts depends.
    pub fn entry_mut(&mut self, id: u32) -> Option<&mut HostEntry> {
        self.entries.get_mut(id as usize)?.as_mut()
    }

    /// The numbers of all hosts.
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        self.by_name.values().copied()
    }

    /// All hosts in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&HostName, &HostUsage)> {
        let entries = self.by_name.iter().filter_map(|(name, id)| Some((name, self.by_id(*id)?)));
        entries.map(|(name, entry)| (name, &entry.host))
    }

    pub fn values(&self) -> impl Iterator<Item = &HostUsage> {
        self.iter().map(|(_, host)| host)
    }

    /// Changes all hosts for which `which` is true.
    pub fn change_all(
        &mut self,
        which: impl Fn(&HostUsage) -> bool,
        mut change: impl FnMut(&mut HostUsage),
    ) {
        for id in 0..self.entries.len() as u32 {
            if self.by_id(id).is_some_and(|entry| which(&entry.host)) {
                self.has_changed(id);
                if let Some(entry) = self.entry_mut(id) {
                    change(&mut entry.host);
                }
            }
        }
    }

    /// Takes the next report of a host. Returns false if the host is not known.
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

    /// Adds a host that is not known. Returns true if the order numbers of other hosts had to
    /// change.
    pub fn insert(&mut self, name: HostName, host: HostUsage) -> bool {
        let id = self.vacant.pop().unwrap_or(self.entries.len() as u32);
        if id as usize == self.entries.len() {
            self.entries.push(None);
        }
        let order = self.order_for(&name);
        self.by_most.insert((host.most, id));
        self.by_name.insert(name.clone(), id);
        let listed = [false; FOLLOWERS.len()];
        let entry =
            HostEntry { name, order: order.unwrap_or(0), host, functions: Vec::new(), listed };
        self.entries[id as usize] = Some(entry);
        self.has_changed(id);
        if order.is_none() {
            self.order_anew();
        }
        order.is_none()
    }

    /// Removes a host and returns its number, which another host may get.
    pub fn remove(&mut self, name: &HostName) -> Option<u32> {
        let id = self.by_name.remove(name)?;
        self.has_changed(id);
        if let Some(entry) = self.entries[id as usize].take() {
            self.by_most.remove(&(entry.host.most, id));
        }
        self.vacant.push(id);
        Some(id)
    }

    /// The hosts that have once reported at least this much memory, those with less first.
    pub fn with_most(&self, memory: u64) -> impl Iterator<Item = &HostEntry> {
        self.by_most.range((memory, 0)..).filter_map(|(_, id)| self.by_id(*id))
    }

    /// The hosts that have never reported this much memory.
    pub fn smaller_than(&self, memory: u64) -> impl Iterator<Item = u32> {
        self.by_most.range(..(memory, 0)).map(|(_, id)| *id)
    }

    /// Notes that a function has instances on a host.
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

    /// Marks a host as changed, for all followers.
    pub fn has_changed(&mut self, id: u32) {
        let Self { entries, changed, .. } = self;
        let Some(Some(entry)) = entries.get_mut(id as usize) else { return };
        for (list, listed) in changed.iter_mut().zip(&mut entry.listed) {
            if !std::mem::replace(listed, true) {
                list.push(id);
            }
        }
    }

    /// Returns the hosts that may have changed since this follower looked last. Some may have been
    /// removed.
    pub fn changed(&mut self, follower: Follower) -> Vec<u32> {
        let changed = std::mem::take(&mut self.changed[follower as usize]);
        for id in &changed {
            if let Some(entry) = self.entry_mut(*id) {
                entry.listed[follower as usize] = false;
            }
        }
        changed
    }

    /// An order number between those of the neighbouring names. `None` if the neighbours leave no
    /// gap.
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

    /// Gives all hosts new order numbers, with gaps between them.
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
            let mut hosts = HostDirectory::default();
            for (name, is_added) in names {
                let name = HostName::try_from(name).unwrap();
                match is_added && !hosts.contains(&name) {
                    true => {
                        hosts.insert(name, HostUsage::new(HostRoom::default()));
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
        let mut hosts = HostDirectory::default();
        for length in (1..60).rev() {
            hosts.insert(
                HostName::try_from("a".repeat(length)).unwrap(),
                HostUsage::new(HostRoom::default()),
            );
        }
        let entries = hosts.by_name.values().map(|id| hosts.by_id(*id).unwrap().order);
        assert!(entries.is_sorted_by(|one, other| one < other));
        assert_eq!(hosts.changed(Follower::Rooms).len(), 59);
        assert!(hosts.changed(Follower::Rooms).is_empty());
    }
}
