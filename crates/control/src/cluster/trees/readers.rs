//! The hosts from which users of an image read its blocks: in the tree of each stripe from each
//! other, or, without trees, each from the registry by itself.
//!
//! Invariant: without trees no host has a parent, and none moves when another one joins or leaves.

use std::collections::BTreeSet;

use snowmelt_tree::{BINARY, StripeMove, Striped};
use snowmelt_types::HostName;

/// The hosts that use an image.
#[derive(Debug)]
pub(super) enum TreeReaders {
    /// Hosts that read from each other, in trees.
    Trees(Box<Striped<HostName>>),
    /// Hosts that each read from the registry, with all blocks in one stripe.
    Alone(BTreeSet<HostName>),
}

impl TreeReaders {
    /// Makes a set without hosts.
    pub fn new(by_trees: bool) -> Self {
        match by_trees {
            true => Self::Trees(Box::new(Striped::new(BINARY))),
            false => Self::Alone(BTreeSet::new()),
        }
    }

    /// Adds a host, if it is not there. Returns the hosts that have other parents then.
    pub fn insert(&mut self, host: HostName) -> Vec<StripeMove<HostName>> {
        match self {
            Self::Trees(trees) => trees.insert(host),
            Self::Alone(hosts) => {
                hosts.insert(host);
                Vec::new()
            }
        }
    }

    /// Takes a host out, if it is there. Returns the hosts that have other parents then.
    pub fn remove(&mut self, host: &HostName) -> Vec<StripeMove<HostName>> {
        match self {
            Self::Trees(trees) => trees.remove(host),
            Self::Alone(hosts) => {
                hosts.remove(host);
                Vec::new()
            }
        }
    }

    /// Returns the host from which another one reads a stripe; `None` if that is the registry.
    pub fn parent(&self, stripe: usize, host: &HostName) -> Option<&HostName> {
        match self {
            Self::Trees(trees) => trees.parent(stripe, host),
            Self::Alone(_) => None,
        }
    }

    /// Returns, for a root, the root of another stripe: it may have blocks that this one would read
    /// from the registry. A host that used the image alone has all of them, and becomes one of the
    /// roots.
    pub fn beside(&self, host: &HostName) -> Option<&HostName> {
        let Self::Trees(trees) = self else { return None };
        let roots = || (0..trees.stripes()).filter_map(|stripe| trees.hosts(stripe).next());
        roots().any(|root| root == host).then(|| roots().find(|root| *root != host)).flatten()
    }

    /// Returns the number of hosts between a host and the registry in a stripe; `None` if it is not
    /// there.
    pub fn depth(&self, stripe: usize, host: &HostName) -> Option<u32> {
        match self {
            Self::Trees(trees) => trees.depth(stripe, host).and_then(|depth| depth.try_into().ok()),
            Self::Alone(hosts) => hosts.contains(host).then_some(0),
        }
    }

    /// Returns whether others read any stripe from a host.
    pub fn sends(&self, host: &HostName) -> bool {
        match self {
            Self::Trees(trees) => {
                (0..trees.stripes()).any(|stripe| trees.children(stripe, host).next().is_some())
            }
            Self::Alone(_) => false,
        }
    }

    /// Returns the number of stripes into which the blocks are divided.
    pub fn stripes(&self) -> usize {
        match self {
            Self::Trees(trees) => trees.stripes(),
            Self::Alone(_) => 1,
        }
    }

    /// Returns all hosts: parents before their children in the first stripe.
    pub fn all(&self) -> impl Iterator<Item = &HostName> {
        let (trees, alone) = match self {
            Self::Trees(trees) => (Some(trees.hosts(0)), None),
            Self::Alone(hosts) => (None, Some(hosts.iter())),
        };
        trees.into_iter().flatten().chain(alone.into_iter().flatten())
    }

    /// Returns whether there are no hosts.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Trees(trees) => trees.is_empty(),
            Self::Alone(hosts) => hosts.is_empty(),
        }
    }
}
