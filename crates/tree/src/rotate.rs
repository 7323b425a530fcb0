//! Removal as FaaSNet does it: rotations restore the balance of a binary tree (FaaSNet 3.2, Figures
//! 6 and 7).
//!
//! The paper does not say what becomes of the children of a removed inner host. Here a leaf of the
//! lowest level below it takes its place.

use crate::slots::{NONE, Slots};

const LEFT: u32 = 0;
const RIGHT: u32 = 1;

impl Slots {
    /// Takes a node out of a tree of fan-out 2.
    pub(crate) fn remove_rotating(&mut self, slot: u32) {
        if self.node(slot).height == 1 {
            let (parent, _) = self.detach(slot);
            return self.rebalance_up(parent);
        }
        let leaf = self.deepest(slot);
        let (parent, _) = self.detach(leaf);
        self.refresh_up(parent);
        self.replace(slot, leaf);
        self.rebalance_up(leaf);
    }

    /// Rotates wherever it is needed from a node up to the root.
    fn rebalance_up(&mut self, from: u32) {
        let mut slot = from;
        while slot != NONE {
            self.refresh(slot);
            let top = if self.spread(slot) > 1 { self.rotate_at(slot) } else { slot };
            slot = self.node(top).parent;
        }
    }

    /// Makes one of the four rotations. Returns the node that is now where `slot` was.
    fn rotate_at(&mut self, slot: u32) -> u32 {
        let left = self.child(slot, LEFT);
        let right = self.child(slot, RIGHT);
        let higher = |node: u32, side: u32| {
            self.height(self.child(node, side)) > self.height(self.child(node, 1 - side))
        };
        match self.height(left) > self.height(right) {
            true if higher(left, RIGHT) => self.left_right_rotate(slot),
            true => self.right_rotate(slot),
            false if higher(right, LEFT) => self.right_left_rotate(slot),
            false => self.left_rotate(slot),
        }
    }

    fn right_rotate(&mut self, slot: u32) -> u32 {
        self.lift(slot, LEFT)
    }

    fn left_rotate(&mut self, slot: u32) -> u32 {
        self.lift(slot, RIGHT)
    }

    fn left_right_rotate(&mut self, slot: u32) -> u32 {
        self.left_rotate(self.child(slot, LEFT));
        self.right_rotate(slot)
    }

    fn right_left_rotate(&mut self, slot: u32) -> u32 {
        self.right_rotate(self.child(slot, RIGHT));
        self.left_rotate(slot)
    }

    /// Puts the child on one side above its parent, which gets that child's inner child.
    fn lift(&mut self, slot: u32, side: u32) -> u32 {
        let child = self.child(slot, side);
        let inner = self.child(child, 1 - side);
        let parent = self.node(slot).parent;
        let place = self.node(slot).place;
        self.attach(child, parent, place);
        self.attach(inner, slot, side);
        self.attach(slot, child, 1 - side);
        self.refresh(slot);
        self.refresh(child);
        child
    }
}
