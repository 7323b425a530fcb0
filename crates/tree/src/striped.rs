//! Striped trees: as many trees of the same hosts as a host has children, each for a part of the
//! blocks, so that the link of each host carries an image about once (the idea of SplitStream).
//!
//! Each tree is filled level by level without gaps, so its hosts with children, the inner ones, are
//! the first `(hosts - 1) / fanout`, rounded up. A removed host is replaced by others until that is
//! so again.
//!
//! Invariant: a host is inner in one tree at most, unless there are more inner places in all trees
//! than hosts; then every host is inner in at least one tree. With fan-out 2 there are never more
//! inner places than hosts.

use std::collections::HashMap;
use std::hash::Hash;
use std::num::NonZeroUsize;

use crate::check::Broken;

const NONE: u32 = u32::MAX;

/// A host that reads one stripe from another host than before. Each host is reported at most once
/// for each stripe and operation, with its parents before and after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripeMove<K> {
    /// The number of the stripe.
    pub stripe: usize,
    /// The host.
    pub host: K,
    /// The host's parent before, which may be the removed host; a root has none.
    pub from: Option<K>,
    /// The host's parent now; a root has none.
    pub to: Option<K>,
}

/// The trees of one function or image. All operations but [`Self::hosts`] and [`Self::check`] take
/// constant time.
#[derive(Clone, Debug)]
pub struct Striped<K> {
    fanout: usize,
    /// The hosts of each stripe in breadth-first order, by their slots.
    orders: Vec<Vec<u32>>,
    /// The place of each slot in the order of each stripe.
    places: Vec<u32>,
    /// The key of each slot in use.
    keys: Vec<Option<K>>,
    by_key: HashMap<K, u32>,
    free: Vec<u32>,
    /// The slots that are inner in no stripe: few, since there are nearly as many inner places as
    /// hosts.
    idle: Vec<u32>,
    /// The slots that are inner in several stripes.
    busy: Vec<u32>,
    /// The slots whose parents the current operation may have changed, each with the stripe and the
    /// parent before the operation.
    touched: Vec<(usize, u32, u32)>,
}

impl<K: Clone + Eq + Hash> Striped<K> {
    /// Makes empty trees, as many as the fan-out of each.
    pub fn new(fanout: NonZeroUsize) -> Self {
        let fanout = fanout.get();
        Self {
            fanout,
            orders: vec![Vec::new(); fanout],
            places: Vec::new(),
            keys: Vec::new(),
            by_key: HashMap::new(),
            free: Vec::new(),
            idle: Vec::new(),
            busy: Vec::new(),
            touched: Vec::new(),
        }
    }

    /// Adds a host to all trees. Returns the other hosts that have another parent now: at most one,
    /// as long as none has been removed. A host that is in the trees already stays where it is.
    pub fn insert(&mut self, host: K) -> Vec<StripeMove<K>> {
        if self.contains(&host) {
            return Vec::new();
        }
        let inner = self.inner();
        let slot = self.allocate(host);
        for stripe in 0..self.fanout {
            *self.place_mut(stripe, slot) = self.orders[stripe].len() as u32;
            self.orders[stripe].push(slot);
        }
        self.classify(slot);
        if self.inner() > inner {
            (0..self.fanout).for_each(|stripe| self.classify(self.orders[stripe][inner]));
        }
        self.settle();
        // Where it gets children next, so that nobody else has to move there then.
        if self.idle.contains(&slot) {
            self.swap(0, self.place(0, slot), self.inner());
        }
        self.moves(slot)
    }

    /// Removes a host. Returns the hosts that have another parent now. Nothing happens if the host
    /// is not in the trees.
    pub fn remove(&mut self, host: &K) -> Vec<StripeMove<K>> {
        let Some(slot) = self.by_key.remove(host) else { return Vec::new() };
        let last = self.orders[0].len() - 1;
        let before = self.inner();
        let inner = self.inner_of(last);
        self.idle.retain(|&idle| idle != slot);
        for stripe in 0..self.fanout {
            let place = self.place(stripe, slot);
            if place < inner {
                // One that would be inner no more, or is not.
                let filler = match before > inner {
                    true => Some(inner),
                    false => self.idle.pop().map(|idle| self.place(stripe, idle)),
                };
                self.swap(stripe, place, filler.unwrap_or(last));
            }
            self.swap(stripe, self.place(stripe, slot), last);
            self.orders[stripe].pop();
        }
        self.busy.retain(|&busy| busy != slot);
        let touched: Vec<u32> = self.touched.iter().map(|&(_, slot, _)| slot).collect();
        let border = (0..self.fanout).filter_map(|stripe| self.orders[stripe].get(inner).copied());
        let changed: Vec<u32> = touched.into_iter().chain(border).collect();
        changed.into_iter().filter(|&it| it != slot).for_each(|slot| self.classify(slot));
        self.settle();
        let moves = self.moves(slot);
        self.keys[slot as usize] = None;
        self.free.push(slot);
        moves
    }

    /// The host from which this one reads a stripe: `None` for a root, and for a host that is not
    /// in the trees.
    pub fn parent(&self, stripe: usize, host: &K) -> Option<&K> {
        self.key(self.parent_of(stripe, self.slot(host)?))
    }

    /// The hosts that read a stripe from this one.
    pub fn children(&self, stripe: usize, host: &K) -> impl Iterator<Item = &K> {
        let below = self.slot(host).map(|slot| self.below(stripe, self.place(stripe, slot)));
        let below = below.unwrap_or_default();
        self.orders[stripe][below].iter().filter_map(|&slot| self.key(slot))
    }

    /// All hosts of a stripe in breadth-first order: parents before their children.
    pub fn hosts(&self, stripe: usize) -> impl Iterator<Item = &K> {
        self.orders[stripe].iter().filter_map(|&slot| self.key(slot))
    }

    /// The number of hops from a host to the root of a stripe.
    pub fn depth(&self, stripe: usize, host: &K) -> Option<usize> {
        Some(self.levels_above(self.place(stripe, self.slot(host)?)))
    }

    /// The number of levels of each tree: 0 without hosts, 1 for a root alone.
    pub fn height(&self) -> usize {
        self.len().checked_sub(1).map_or(0, |last| self.levels_above(last) + 1)
    }

    /// The number of trees.
    pub fn stripes(&self) -> usize {
        self.fanout
    }

    /// Whether a host is there.
    pub fn contains(&self, host: &K) -> bool {
        self.by_key.contains_key(host)
    }

    /// The number of hosts.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there is no host.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Checks each host in each stripe.
    ///
    /// # Errors
    /// The first broken invariant that is found.
    pub fn check(&self) -> Result<(), Broken<K>> {
        for (stripe, order) in self.orders.iter().enumerate() {
            if order.len() != self.len() {
                return Err(Broken::Lost(self.len().abs_diff(order.len())));
            }
            for (place, &slot) in order.iter().enumerate() {
                let host = self.key(slot).ok_or(Broken::Lost(1))?;
                if self.slot(host) != Some(slot) || self.place(stripe, slot) != place {
                    return Err(Broken::Links(host.clone()));
                }
            }
        }
        let inner = |slot: u32| (slot, self.inner_in(slot).count());
        let counts: Vec<_> = self.by_key.values().map(|&slot| inner(slot)).collect();
        let is_idle = counts.iter().any(|&(_, count)| count == 0);
        match counts.iter().find(|&&(_, count)| count > 1 && (is_idle || self.fanout == 2)) {
            Some(&(slot, _)) => {
                Err(self.key(slot).cloned().map_or(Broken::Lost(1), Broken::Overlap))
            }
            None => Ok(()),
        }
    }

    /// Gives hosts that are inner in no stripe the last places of hosts that are inner in several.
    fn settle(&mut self) {
        while let (Some(&idle), Some(&busy)) = (self.idle.last(), self.busy.last()) {
            let last = self.inner_in(busy).max_by_key(|&stripe| self.place(stripe, busy));
            let stripe = last.unwrap_or_default();
            self.swap(stripe, self.place(stripe, busy), self.place(stripe, idle));
            self.classify(idle);
            self.classify(busy);
        }
    }

    fn classify(&mut self, slot: u32) {
        let count = self.inner_in(slot).count();
        for (slots, belongs) in [(&mut self.idle, count == 0), (&mut self.busy, count > 1)] {
            slots.retain(|&it| it != slot);
            if belongs {
                slots.push(slot);
            }
        }
    }

    /// The stripes in which a host has children.
    fn inner_in(&self, slot: u32) -> impl Iterator<Item = usize> {
        let inner = self.inner();
        (0..self.fanout).filter(move |&stripe| self.place(stripe, slot) < inner)
    }

    /// Exchanges the hosts of two places.
    fn swap(&mut self, stripe: usize, one: usize, other: usize) {
        if one == other {
            return;
        }
        for place in [one, other] {
            self.touch(stripe, place);
            self.below(stripe, place).for_each(|child| self.touch(stripe, child));
        }
        self.orders[stripe].swap(one, other);
        for place in [one, other] {
            *self.place_mut(stripe, self.orders[stripe][place]) = place as u32;
        }
    }

    fn touch(&mut self, stripe: usize, place: usize) {
        let slot = self.orders[stripe][place];
        let is_known = self.touched.iter().any(|&(at, it, _)| (at, it) == (stripe, slot));
        if !is_known {
            self.touched.push((stripe, slot, self.parent_of(stripe, slot)));
        }
    }

    /// The moves of the touched hosts, without the host that is added or removed.
    fn moves(&mut self, except: u32) -> Vec<StripeMove<K>> {
        let touched = std::mem::take(&mut self.touched);
        let moved = |&(stripe, slot, from): &(usize, u32, u32)| {
            let to = self.parent_of(stripe, slot);
            (slot != except && from != to).then_some(())?;
            let from = self.key(from).cloned();
            let to = self.key(to).cloned();
            Some(StripeMove { stripe, host: self.key(slot)?.clone(), from, to })
        };
        let moves = touched.iter().filter_map(moved).collect();
        self.touched = touched;
        self.touched.clear();
        moves
    }

    fn allocate(&mut self, host: K) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.keys.push(None);
            self.places.extend(std::iter::repeat_n(NONE, self.fanout));
            (self.keys.len() - 1) as u32
        });
        self.keys[slot as usize] = Some(host.clone());
        self.by_key.insert(host, slot);
        slot
    }

    fn slot(&self, host: &K) -> Option<u32> {
        self.by_key.get(host).copied()
    }

    fn key(&self, slot: u32) -> Option<&K> {
        self.keys.get(slot as usize)?.as_ref()
    }

    fn place(&self, stripe: usize, slot: u32) -> usize {
        self.places[slot as usize * self.fanout + stripe] as usize
    }

    fn place_mut(&mut self, stripe: usize, slot: u32) -> &mut u32 {
        &mut self.places[slot as usize * self.fanout + stripe]
    }

    fn parent_of(&self, stripe: usize, slot: u32) -> u32 {
        let above = self.place(stripe, slot).checked_sub(1);
        above.map_or(NONE, |place| self.orders[stripe][place / self.fanout])
    }

    /// The places of the children of a place.
    fn below(&self, stripe: usize, place: usize) -> std::ops::Range<usize> {
        let first = place * self.fanout + 1;
        let end = self.orders[stripe].len();
        first.min(end)..(first + self.fanout).min(end)
    }

    fn levels_above(&self, place: usize) -> usize {
        let above = |&place: &usize| Some(place.checked_sub(1)? / self.fanout);
        std::iter::successors(Some(place), above).count() - 1
    }

    /// The number of places of each stripe that have children: these are the first places.
    fn inner(&self) -> usize {
        self.inner_of(self.orders[0].len())
    }

    fn inner_of(&self, hosts: usize) -> usize {
        hosts.saturating_sub(1).div_ceil(self.fanout)
    }
}
