//! The tree by the hosts' own keys.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::num::NonZeroUsize;

use crate::change::{Move, Placed};
use crate::slots::{NONE, Slots};

/// The fan-out of FaaSNet's trees.
pub const BINARY: NonZeroUsize = NonZeroUsize::new(2).unwrap();

/// The way in which a removal keeps the tree balanced. Every way keeps the same invariant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repair {
    /// A leaf of the lowest level fills the hole: the fewest moves, for any fan-out.
    #[default]
    Refill,
    /// The four rotations of FaaSNet 3.2. Trees of another fan-out than 2 refill.
    Rotate,
}

/// The tree of hosts of one function. Parent and children of a host cost one look-up; an insertion
/// or a removal costs a walk between a host and the root.
#[derive(Clone, Debug)]
pub struct Tree<K> {
    pub(crate) slots: Slots,
    repair: Repair,
    /// The key of each slot in use.
    keys: Vec<Option<K>>,
    by_key: HashMap<K, u32>,
}

impl<K: Clone + Eq + Hash> Default for Tree<K> {
    fn default() -> Self {
        Self::new(BINARY)
    }
}

impl<K: Clone + Eq + Hash> Tree<K> {
    /// An empty tree.
    pub fn new(fanout: NonZeroUsize) -> Self {
        Self::with_repair(fanout, Repair::default())
    }

    /// An empty tree whose removals repair it in a given way.
    pub fn with_repair(fanout: NonZeroUsize, repair: Repair) -> Self {
        let slots = Slots::new(fanout.get());
        Self { slots, repair, keys: Vec::new(), by_key: HashMap::new() }
    }

    /// Adds a host in the first free place in breadth-first order. No other host moves. A host that
    /// is in the tree already stays where it is.
    pub fn insert(&mut self, host: K) -> Placed<K> {
        if let Some(slot) = self.slot(&host) {
            return self.placed(slot, false);
        }
        let (parent, place) = if self.is_empty() { (NONE, 0) } else { self.slots.first_room() };
        let slot = self.add(host, parent, place);
        self.placed(slot, true)
    }

    /// Removes a host. Returns the hosts that read from another host now, in no given order.
    /// Nothing happens if the host is not in the tree.
    pub fn remove(&mut self, host: &K) -> Vec<Move<K>> {
        let Some(slot) = self.by_key.remove(host) else { return Vec::new() };
        self.slots.moved.clear();
        match self.repair {
            Repair::Rotate if self.fanout() == 2 => self.slots.remove_rotating(slot),
            _ => self.slots.remove_refilling(slot),
        }
        let moved = std::mem::take(&mut self.slots.moved);
        let moves = moved.iter().filter_map(|&(slot, from)| self.moved(slot, from)).collect();
        // The list keeps its memory for the next removal.
        self.slots.moved = moved;
        self.keys[slot as usize] = None;
        self.slots.release(slot);
        moves
    }

    /// The host from which this one reads: `None` for the root, and for a host that is not in the
    /// tree.
    pub fn parent(&self, host: &K) -> Option<&K> {
        let slot = self.slot(host)?;
        self.key(self.slots.node(slot).parent)
    }

    /// The hosts that read from this one.
    pub fn children(&self, host: &K) -> impl Iterator<Item = &K> {
        let slot = self.slot(host);
        let places = slot.map_or(&[][..], |slot| self.slots.children(slot));
        places.iter().filter_map(|&child| self.key(child))
    }

    /// The host that reads from the registry.
    pub fn root(&self) -> Option<&K> {
        self.key(self.slots.root)
    }

    /// All hosts in breadth-first order: parents before their children.
    pub fn hosts(&self) -> impl Iterator<Item = &K> {
        let mut queue = VecDeque::from_iter((!self.is_empty()).then_some(self.slots.root));
        std::iter::from_fn(move || {
            let slot = queue.pop_front()?;
            queue.extend(self.slots.children(slot).iter().filter(|&&child| child != NONE));
            self.key(slot)
        })
    }

    /// The number of hops from a host to the root.
    pub fn depth(&self, host: &K) -> Option<usize> {
        Some(self.slot_depth(self.slot(host)?))
    }

    /// The number of levels: 0 for an empty tree, 1 for a root alone.
    pub fn height(&self) -> usize {
        self.slots.height(self.slots.root) as usize
    }

    /// Whether a host is in the tree.
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

    /// The greatest number of hosts that read from one host.
    pub fn fanout(&self) -> usize {
        self.slots.fanout()
    }

    /// Puts a new host into an empty place.
    pub(crate) fn add(&mut self, host: K, parent: u32, place: u32) -> u32 {
        let slot = self.slots.allocate();
        if slot as usize == self.keys.len() {
            self.keys.push(None);
        }
        self.slots.attach_new(slot, parent, place);
        self.slots.refresh_up(parent);
        self.keys[slot as usize] = Some(host.clone());
        self.by_key.insert(host, slot);
        slot
    }

    pub(crate) fn slot(&self, host: &K) -> Option<u32> {
        self.by_key.get(host).copied()
    }

    pub(crate) fn key(&self, slot: u32) -> Option<&K> {
        self.keys.get(slot as usize)?.as_ref()
    }

    fn placed(&self, slot: u32, added: bool) -> Placed<K> {
        let parent = self.key(self.slots.node(slot).parent).cloned();
        Placed { parent, depth: self.slot_depth(slot), added }
    }

    fn slot_depth(&self, slot: u32) -> usize {
        let above = |&slot: &u32| Some(self.slots.node(slot).parent).filter(|&up| up != NONE);
        std::iter::successors(Some(slot), above).count() - 1
    }

    /// The move of a node that was attached elsewhere. `None` if it is below its old parent again.
    fn moved(&self, slot: u32, from: u32) -> Option<Move<K>> {
        let to = self.slots.node(slot).parent;
        let host = self.key(slot)?.clone();
        (to != from).then(|| Move {
            host,
            from: self.key(from).cloned(),
            to: self.key(to).cloned(),
        })
    }
}
