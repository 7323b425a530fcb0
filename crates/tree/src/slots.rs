//! The links of the tree, by numbers of slots instead of keys.
//!
//! Invariant: `height` and `room` of a node fit its children wherever no operation is under way.

/// No node.
pub(crate) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub(crate) parent: u32,
    /// The number of the node's place among the parent's places.
    pub(crate) place: u32,
    /// The number of levels of the subtree: 1 for a leaf.
    pub(crate) height: u32,
    /// The number of levels from here down to the nearest node with an empty place.
    pub(crate) room: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Slots {
    fanout: usize,
    pub(crate) root: u32,
    nodes: Vec<Node>,
    /// The places of all nodes in one list, `fanout` places for each node.
    places: Vec<u32>,
    free: Vec<u32>,
    /// The nodes whose parent the current operation has changed, with the parents before it.
    pub(crate) moved: Vec<(u32, u32)>,
}

impl Slots {
    pub(crate) fn new(fanout: usize) -> Self {
        let nodes = Vec::new();
        let places = Vec::new();
        let free = Vec::new();
        let moved = Vec::new();
        Self { fanout, root: NONE, nodes, places, free, moved }
    }

    pub(crate) fn fanout(&self) -> usize {
        self.fanout
    }

    pub(crate) fn node(&self, slot: u32) -> &Node {
        &self.nodes[slot as usize]
    }

    pub(crate) fn children(&self, slot: u32) -> &[u32] {
        let first = slot as usize * self.fanout;
        &self.places[first..first + self.fanout]
    }

    pub(crate) fn child(&self, slot: u32, place: u32) -> u32 {
        self.places[slot as usize * self.fanout + place as usize]
    }

    pub(crate) fn height(&self, slot: u32) -> u32 {
        if slot == NONE { 0 } else { self.node(slot).height }
    }

    /// Makes a new leaf, which is nowhere in the tree yet.
    pub(crate) fn allocate(&mut self) -> u32 {
        let leaf = Node { parent: NONE, place: 0, height: 1, room: 0 };
        if let Some(slot) = self.free.pop() {
            self.nodes[slot as usize] = leaf;
            return slot;
        }
        self.nodes.push(leaf);
        self.places.extend(std::iter::repeat_n(NONE, self.fanout));
        (self.nodes.len() - 1) as u32
    }

    pub(crate) fn release(&mut self, slot: u32) {
        let first = slot as usize * self.fanout;
        self.places[first..first + self.fanout].fill(NONE);
        self.free.push(slot);
    }

    /// Returns the first node in breadth-first order that has an empty place, and that place. The
    /// tree must not be empty.
    pub(crate) fn first_room(&self) -> (u32, u32) {
        let mut slot = self.root;
        loop {
            let room = self.node(slot).room;
            let fits = |&child: &u32| match room {
                0 => child == NONE,
                _ => child != NONE && self.node(child).room == room - 1,
            };
            let place = self.children(slot).iter().position(fits).unwrap_or(0) as u32;
            if room == 0 {
                return (slot, place);
            }
            slot = self.child(slot, place);
        }
    }

    /// Returns the last leaf of the lowest level, which is found by always going to the highest
    /// subtree. Nothing loses its balance when this leaf is taken out: on the way down, every
    /// subtree was among the highest of its siblings.
    pub(crate) fn deepest(&self, from: u32) -> u32 {
        let mut slot = from;
        while self.node(slot).height > 1 {
            let highest = self.children(slot).iter().max_by_key(|&&child| self.height(child));
            slot = *highest.unwrap_or(&NONE);
        }
        slot
    }

    /// Puts `child` into a place of `parent`. `child` may be no node; the place of no node is the
    /// root. A child that had another parent before is noted as moved.
    pub(crate) fn attach(&mut self, child: u32, parent: u32, place: u32) {
        match parent {
            NONE => self.root = child,
            _ => self.places[parent as usize * self.fanout + place as usize] = child,
        }
        if child == NONE {
            return;
        }
        let node = &mut self.nodes[child as usize];
        let before = std::mem::replace(&mut node.parent, parent);
        node.place = place;
        if before != parent && !self.moved.iter().any(|&(moved, _)| moved == child) {
            self.moved.push((child, before));
        }
    }

    /// Puts a node into a place like [`Self::attach`]. The node is new in the tree, so it is not
    /// noted as moved.
    pub(crate) fn attach_new(&mut self, child: u32, parent: u32, place: u32) {
        self.nodes[child as usize].parent = parent;
        self.attach(child, parent, place);
    }

    /// Empties the place of a node, and returns that place. The node keeps the number of its parent
    /// until it is attached elsewhere.
    pub(crate) fn detach(&mut self, slot: u32) -> (u32, u32) {
        let parent = self.node(slot).parent;
        let place = self.node(slot).place;
        self.attach(NONE, parent, place);
        (parent, place)
    }

    /// Puts `other`, a detached leaf, where `slot` is, with all its children.
    pub(crate) fn replace(&mut self, slot: u32, other: u32) {
        for place in 0..self.fanout as u32 {
            self.attach(self.child(slot, place), other, place);
        }
        let Node { parent, place, height, room } = *self.node(slot);
        self.attach(other, parent, place);
        let node = &mut self.nodes[other as usize];
        (node.height, node.room) = (height, room);
    }

    /// Computes height and room of a node from its children. Returns whether one of the two
    /// changed.
    pub(crate) fn refresh(&mut self, slot: u32) -> bool {
        let mut highest = 0;
        let mut room = u32::MAX;
        for &child in self.children(slot) {
            let (height, below) = match child {
                NONE => (0, 0),
                _ => (self.node(child).height, self.node(child).room + 1),
            };
            highest = highest.max(height);
            room = room.min(below);
        }
        let node = &mut self.nodes[slot as usize];
        let before = (node.height, node.room);
        (node.height, node.room) = (highest + 1, room);
        before != (node.height, node.room)
    }

    /// The difference between the highest and the lowest subtree of a node.
    pub(crate) fn spread(&self, slot: u32) -> u32 {
        let heights = || self.children(slot).iter().map(|&child| self.height(child));
        heights().max().unwrap_or(0) - heights().min().unwrap_or(0)
    }

    /// Refreshes a node and all nodes above it that this changes. Returns whether they are all
    /// balanced.
    pub(crate) fn refresh_up(&mut self, from: u32) -> bool {
        let mut slot = from;
        let mut balanced = true;
        while slot != NONE {
            let changed = self.refresh(slot);
            balanced &= self.spread(slot) <= 1;
            if !changed {
                break;
            }
            slot = self.node(slot).parent;
        }
        balanced
    }
}
