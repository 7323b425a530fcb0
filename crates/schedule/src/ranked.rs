//! Hosts in the order in which they are asked for a new instance.
//!
//! Hosts of one load are one level, ordered by their places. So the first host with enough memory is
//! found without a look at the others: a look-up for each load and each pair of depth and number of
//! trees that there is, however many hosts there are.

use std::collections::{BTreeMap, BTreeSet};

use crate::load::Load;

/// What a host is compared by for a new instance, besides its load and what it lacks; the least is
/// taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Hosts above it in the tree of the image.
    pub depth: u32,
    /// Trees in which it sends to others.
    pub inner: u32,
    /// Memory that is left: the fullest host that the instance fits on is taken, so that the emptiest
    /// ones become free.
    pub left: u64,
    /// The order of its name.
    pub order: u64,
    /// Its number.
    pub id: u32,
}

/// What an instance needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// Bytes.
    pub memory: u64,
    /// Thousandths of cores.
    pub cpu_millis: u32,
    /// Whether its core must be free.
    pub free_core: bool,
}

/// The order.
#[derive(Debug, Default)]
pub(crate) struct Ranked(BTreeMap<Load, Level>);

/// Hosts of one load.
#[derive(Debug, Default)]
struct Level {
    places: BTreeSet<Place>,
    /// How many of them have so much memory left: most levels without room are passed by one look.
    left: BTreeMap<u64, u32>,
}

impl Ranked {
    /// A host has another place, or one for the first time, or none any more.
    pub fn replace(&mut self, before: Option<(Load, Place)>, after: Option<(Load, Place)>) {
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

    /// The first host that has what an instance needs and is accepted, with the load of its cores if
    /// they do not suffice; else with 0.
    pub fn first(&self, needs: Needs, accepts: impl Fn(u32) -> bool) -> Option<(u64, Place)> {
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

    fn remove(&mut self, load: Load, place: Place) {
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

    fn first(&self, memory: u64, accepts: &impl Fn(u32) -> bool) -> Option<Place> {
        let mut from = Place { depth: 0, inner: 0, left: memory, order: 0, id: 0 };
        loop {
            let next = *self.places.range(from..).next()?;
            from = match next.left < memory {
                // The first of a depth and number of trees, where the order of memory begins again.
                true => Place { left: memory, order: 0, id: 0, ..next },
                false if accepts(next.id) => return Some(next),
                false => Place { order: next.order + 1, id: 0, ..next },
            };
        }
    }
}
