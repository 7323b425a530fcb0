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

/// A network namespace for sandboxes of one lane. Dropping it closes the spawner's descriptor; the
/// kernel removes the namespace after its last sandbox has ended.
pub struct NetworkNamespace {
    id: NetworkId,
    namespace: OwnedFd,
    lane: Arc<LaneRegistry>,
}

impl NetworkNamespace {
    pub(super) fn new(id: NetworkId, namespace: OwnedFd, lane: Arc<LaneRegistry>) -> Self {
        Self { id, namespace, lane }
    }

    pub(super) fn next_id() -> NetworkId {
        NetworkId(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The id of the network in specs.
    pub fn id(&self) -> NetworkId {
        self.id
    }

    /// Whether sandboxes can still be put into the network. They cannot once the lane that made it
    /// has ended.
    pub fn is_alive(&self) -> bool {
        self.lane.load().is_some()
    }

    pub(super) fn lane(&self) -> &Arc<LaneRegistry> {
        &self.lane
    }
}

impl AsFd for NetworkNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.namespace.as_fd()
    }
}

impl fmt::Debug for NetworkNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetworkNamespace").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Drop for NetworkNamespace {
    fn drop(&mut self) {
        self.lane.post(no_sandbox(), SpawnerOperation::DropNetwork { network: self.id });
    }
}
