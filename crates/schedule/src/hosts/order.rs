//! Hosts in the order in which they are asked for a new instance.
//!
//! Hosts with the same load form one level, and are ordered by their places in it. So the first
//! host with enough memory is found without a look at all hosts: one look-up for each load, and for
//! each pair of depth and number of trees, whatever the number of hosts.

use std::collections::{BTreeMap, BTreeSet};

use super::load::CoreLoad;

/// The key of a host within a level; the host with the least key is taken. Load and missing parts
/// of the function are compared before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostKey {
    /// The number of hosts above this one in the tree of the image.
    pub depth: u32,
    /// The number of trees in which this host sends to others.
    pub inner: u32,
    /// The memory that is left in bytes. The fullest host that has room for the instance is taken,
    /// so that the emptiest hosts become free.
    pub left: u64,
    /// The position of the host's name in the order of all names.
    pub order: u64,
    /// The number of the host.
    pub id: u32,
}

/// The requirements of an instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// The memory limit in bytes.
    pub memory: u64,
    /// The share of cores in thousandths of a core.
    pub cpu_millis: u32,
    /// Whether the core of the instance must be free.
    pub free_core: bool,
}

/// The hosts by load, and by place within a load.
#[derive(Debug, Default)]
pub(crate) struct Ranked(BTreeMap<CoreLoad, Level>);

/// The hosts with the same load.
#[derive(Debug, Default)]
struct Level {
    places: BTreeSet<HostKey>,
    /// The number of hosts for each amount of memory that is left. A level without enough room is
    /// skipped with one look.
    left: BTreeMap<u64, u32>,
}

impl Ranked {
    /// Moves a host from its place `before` to its place `after`. `None` stands for no place.
    pub fn replace(
        &mut self,
        before: Option<(CoreLoad, HostKey)>,
        after: Option<(CoreLoad, HostKey)>,
    ) {
        if before == after {
            return;
        }
        if let Some((load, place)) = before {
            self.remove(load, place);
        }
        if let Some((load, place)) = after {
            let level = self.0.entry(load).or_default();
            level.places.insert(place);
            *level.left.entry(place.left).or_default() += 1;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the first host that meets the needs and that `accepts` takes, with the load of its
    /// cores if they do not suffice, else with 0.
    pub fn first(&self, needs: Needs, accepts: impl Fn(u32) -> bool) -> Option<(u64, HostKey)> {
        let over = self.0.iter().map(|(load, level)| (load.over(needs.cpu_millis), level));
        let mut levels: Vec<_> = over
            .filter(|(over, level)| (*over == 0 || !needs.free_core) && level.fits(needs.memory))
            .collect();
        levels.sort_unstable_by_key(|(over, _)| *over);
        levels.chunk_by(|one, other| one.0 == other.0).find_map(|equal| {
            let first = equal.iter().filter_map(|(_, level)| level.first(needs.memory, &accepts));
            Some((equal.first()?.0, first.min()?))
        })
    }

    fn remove(&mut self, load: CoreLoad, place: HostKey) {
        let Some(level) = self.0.get_mut(&load) else { return };
        if level.places.remove(&place)
            && let Some(count) = level.left.get_mut(&place.left)
        {
            *count -= 1;
            if *count == 0 {
                level.left.remove(&place.left);
            }
        }
        if level.places.is_empty() {
            self.0.remove(&load);
        }
    }
}

impl Level {
    fn fits(&self, memory: u64) -> bool {
        self.left.last_key_value().is_some_and(|(left, _)| *left >= memory)
    }

    fn first(&self, memory: u64, accepts: &impl Fn(u32) -> bool) -> Option<HostKey> {
        let mut from = HostKey { depth: 0, inner: 0, left: memory, order: 0, id: 0 };
        loop {
            let next = *self.places.range(from..).next()?;
            from = match next.left < memory {
                // The first of a depth and number of trees, where the order of memory begins again.
                true => HostKey { left: memory, order: 0, id: 0, ..next },
                false if accepts(next.id) => return Some(next),
                false => HostKey { order: next.order + 1, id: 0, ..next },
            };
        }
    }
}
