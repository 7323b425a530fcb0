//! The caller's side of a job's network namespace.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::registry::LaneRegistry;
use super::request::no_sandbox;
use crate::message::SpawnerOperation;
use crate::spec::NetworkId;

/// The next number of a network. Numbers are unique within a process.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A network of one lane, from before its request. Dropping it has the lane drop the network: also
/// one whose maker does not wait for it any more, which nobody else knows.
pub(super) struct LaneNetwork {
    id: NetworkId,
    lane: Arc<LaneRegistry>,
}

impl LaneNetwork {
    pub fn new(lane: Arc<LaneRegistry>) -> Self {
        Self { id: NetworkId(NEXT.fetch_add(1, Ordering::Relaxed)), lane }
    }

    pub fn id(&self) -> NetworkId {
        self.id
    }

    pub fn lane(&self) -> &Arc<LaneRegistry> {
        &self.lane
    }
}

impl Drop for LaneNetwork {
    fn drop(&mut self) {
        // The lane handles packets in order, and ignores the id of a network that it has not made.
        self.lane.post(no_sandbox(), SpawnerOperation::DropNetwork { network: self.id });
    }
}

/// A network namespace for sandboxes of one lane. Dropping it closes the spawner's descriptor; the
/// kernel removes the namespace after its last sandbox has ended.
pub struct NetworkNamespace {
    network: LaneNetwork,
    namespace: OwnedFd,
}

impl NetworkNamespace {
    pub(super) fn new(network: LaneNetwork, namespace: OwnedFd) -> Self {
        Self { network, namespace }
    }

    /// The id of the network in specs.
    pub fn id(&self) -> NetworkId {
        self.network.id()
    }

    /// Whether sandboxes can still be put into the network. They cannot once the lane that made it
    /// has ended.
    pub fn is_alive(&self) -> bool {
        self.lane().load().is_some()
    }

    pub(super) fn lane(&self) -> &Arc<LaneRegistry> {
        self.network.lane()
    }
}

impl AsFd for NetworkNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.namespace.as_fd()
    }
}

impl fmt::Debug for NetworkNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetworkNamespace").field("id", &self.id()).finish_non_exhaustive()
    }
}
