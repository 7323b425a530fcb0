//! A check of the whole tree, for tests and for the simulator.

use std::fmt;
use std::hash::Hash;

use crate::slots::NONE;
use crate::tree::Tree;

/// The fault of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken<K> {
    /// The subtrees of a host differ in height by more than 1.
    Unbalanced(K),
    /// A host's height or room is not that of its children, or a child names another parent.
    Links(K),
    /// Hosts that cannot be reached from the root.
    Lost(usize),
    /// A host has children in several stripes, although another one has them in none.
    Overlap(K),
}

impl<K: fmt::Debug> fmt::Display for Broken<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unbalanced(host) => write!(f, "the subtrees of {host:?} are not balanced"),
            Self::Links(host) => write!(f, "the links of {host:?} are wrong"),
            Self::Lost(count) => write!(f, "{count} hosts cannot be reached from the root"),
            Self::Overlap(host) => write!(f, "{host:?} has children in several stripes"),
        }
    }
}

impl<K: Clone + Eq + Hash> Tree<K> {
    /// Checks each host. A tree in which each host fits its children is right as a whole.
    ///
    /// # Errors
    /// The first broken invariant that is found.
    pub fn check(&self) -> Result<(), Broken<K>> {
        let mut seen = 0;
        for host in self.hosts() {
            self.check_one(host)?;
            seen += 1;
        }
        match self.len() - seen {
            0 => Ok(()),
            lost => Err(Broken::Lost(lost)),
        }
    }

    fn check_one(&self, host: &K) -> Result<(), Broken<K>> {
        let slot = self.slot(host).unwrap_or(NONE);
        if self.key(slot) != Some(host) {
            return Err(Broken::Links(host.clone()));
        }
        let mut highest = 0;
        let mut lowest = u32::MAX;
        let mut room = u32::MAX;
        for &child in self.slots.children(slot) {
            let (height, below) = match child {
                NONE => (0, 0),
                _ if self.slots.node(child).parent != slot => {
                    return Err(Broken::Links(host.clone()));
                }
                _ => (self.slots.node(child).height, self.slots.node(child).room + 1),
            };
            (highest, lowest) = (highest.max(height), lowest.min(height));
            room = room.min(below);
        }
        let node = self.slots.node(slot);
        if (node.height, node.room) != (highest + 1, room) {
            return Err(Broken::Links(host.clone()));
        }
        match highest - lowest {
            0 | 1 => Ok(()),
            _ => Err(Broken::Unbalanced(host.clone())),
        }
    }
}
