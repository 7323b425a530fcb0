//! A tree that was stored, or that its hosts report: the same parents as before.

use std::fmt;
use std::hash::Hash;
use std::num::NonZeroUsize;

use crate::check::Broken;
use crate::slots::NONE;
use crate::tree::Tree;

/// The reason why hosts and parents are not a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unrestorable<K> {
    /// A host is there twice.
    Twice(K),
    /// A host is there before its parent, or its parent not at all.
    NoParent(K),
    /// A host without a parent, besides the root.
    SecondRoot(K),
    /// A host whose parent has as many children as the fan-out.
    Full(K),
    /// The whole is not balanced.
    Broken(Broken<K>),
}

impl<K: fmt::Debug> fmt::Display for Unrestorable<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Twice(host) => write!(f, "{host:?} is there twice"),
            Self::NoParent(host) => write!(f, "the parent of {host:?} is not there before it"),
            Self::SecondRoot(host) => write!(f, "{host:?} is a second root"),
            Self::Full(host) => write!(f, "the parent of {host:?} has too many children"),
            Self::Broken(broken) => broken.fmt(f),
        }
    }
}

impl<K: Clone + Eq + Hash> Tree<K> {
    /// Builds a tree of hosts with the parents that they have. The hosts come in the order of
    /// [`Self::hosts`] or in another one in which parents come first.
    ///
    /// # Errors
    /// The hosts and parents are not a balanced tree of this fan-out.
    pub fn restore(
        fanout: NonZeroUsize,
        hosts: impl IntoIterator<Item = (K, Option<K>)>,
    ) -> Result<Self, Unrestorable<K>> {
        let mut tree = Self::new(fanout);
        for (host, parent) in hosts {
            tree.restore_one(host, parent)?;
        }
        match tree.check() {
            Ok(()) => Ok(tree),
            Err(broken) => Err(Unrestorable::Broken(broken)),
        }
    }

    fn restore_one(&mut self, host: K, parent: Option<K>) -> Result<(), Unrestorable<K>> {
        if self.contains(&host) {
            return Err(Unrestorable::Twice(host));
        }
        let (above, place) = match parent {
            None if !self.is_empty() => return Err(Unrestorable::SecondRoot(host)),
            None => (NONE, 0),
            Some(parent) => {
                let Some(above) = self.slot(&parent) else {
                    return Err(Unrestorable::NoParent(host));
                };
                let places = self.slots.children(above);
                match places.iter().position(|&child| child == NONE) {
                    Some(place) => (above, place as u32),
                    None => return Err(Unrestorable::Full(host)),
                }
            }
        };
        self.add(host, above, place);
        Ok(())
    }
}
