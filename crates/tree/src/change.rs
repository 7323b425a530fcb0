//! What an insertion or a removal changed, for those who tell the hosts.

/// Where a host is in the tree, as [`crate::Tree::insert`] found or made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed<K> {
    /// The host that it reads from; the root has none, and reads from the registry.
    pub parent: Option<K>,
    /// Hops to the root, 0 for the root itself.
    pub depth: usize,
    /// False if the host was in the tree already, where it stays.
    pub added: bool,
}

/// A host that reads from another one than before. Each host is reported at most once for each
/// removal, with its parents before and after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move<K> {
    /// The host.
    pub host: K,
    /// Its parent before, which may be the removed host; the root has none.
    pub from: Option<K>,
    /// Its parent now; the root has none.
    pub to: Option<K>,
}
