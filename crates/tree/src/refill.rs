//! Removal with the fewest moves: the hole is filled with a leaf of the lowest level, if leaving it
//! open would break the balance or leave hosts without a parent.
//!
//! A removed leaf costs no move or one; a removed inner host costs one for each child, which all
//! need another parent, and at most one more.

use crate::slots::Slots;

impl Slots {
    /// Takes a node out of the tree.
    pub(crate) fn remove_refilling(&mut self, slot: u32) {
        if self.node(slot).height == 1 {
            let (parent, place) = self.detach(slot);
            return self.fill(parent, place);
        }
        let leaf = |&&child: &&u32| self.height(child) == 1;
        match self.children(slot).iter().rfind(leaf).copied() {
            // The child has the others below it then, and its own place is empty.
            Some(child) => {
                let (_, place) = self.detach(child);
                self.replace(slot, child);
                self.fill(child, place);
            }
            None => {
                let leaf = self.take_deepest();
                self.replace(slot, leaf);
            }
        }
    }

    /// Puts a leaf of the lowest level into an empty place, if a node is not balanced otherwise.
    /// Then all nodes are balanced: the tree has the shape that it had, less that leaf.
    fn fill(&mut self, parent: u32, place: u32) {
        if !self.refresh_up(parent) {
            let leaf = self.take_deepest();
            self.attach(leaf, parent, place);
            self.refresh_up(parent);
        }
    }

    fn take_deepest(&mut self) -> u32 {
        let leaf = self.deepest(self.root);
        let (parent, _) = self.detach(leaf);
        self.refresh_up(parent);
        leaf
    }
}
