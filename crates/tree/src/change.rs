//! The changes by an insertion or a removal, for the code that tells the hosts.

/// The place of a host in the tree, as [`crate::Tree::insert`] found or made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed<K> {
    /// The host from which this one reads; the root has none, and reads from the registry.
    pub parent: Option<K>,
    /// The number of hops to the root, 0 for the root itself.
    pub depth: usize,
    /// False if the host was in the tree already, where it stays.
    pub added: bool,
}

/// A host that reads from another host than before. Each host is reported at most once for each
/// removal, with its parents before and after the removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move<K> {
    /// The host.
    pub host: K,
    /// The host's parent before, which may be the removed host; the root has none.
    pub from: Option<K>,
    /// The host's parent now; the root has none.
    pub to: Option<K>,
}
