//! Pre-created network namespaces: when the network of a job is removed, the next one for functions
//! of the same zygote is made, because only the zygote's children may enter it (decision 013).
//!
//! Invariant: each namespace serves one job and was not used before. There is at most one for each
//! zygote and one for programs, and never more than [`MOST`] on a node. A namespace is removed with
//! its zygote.

use std::sync::{Arc, Mutex, PoisonError};

use snowmelt_network::NamespaceHandle;
use snowmelt_sandbox::NetworkNamespace;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most pre-created namespaces on a node.
pub(crate) const MOST: usize = 16;

/// A place for one pre-created namespace.
#[derive(Debug, Default)]
pub(crate) struct Precreated(Mutex<Option<SpareNamespace>>);

#[derive(Debug)]
pub(crate) struct SpareNamespace {
    pub fresh: Fresh,
    pub _counted: OwnedSemaphorePermit,
}

/// An unused network namespace, and the handle by which `snowmelt_network` configured it before
/// there is a job for it.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub namespace: NetworkNamespace,
    pub furnished: NamespaceHandle,
}

impl Precreated {
    pub fn take(&self) -> Option<Fresh> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().map(|waiting| waiting.fresh)
    }

    pub fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    pub fn put(&self, waiting: SpareNamespace) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(waiting);
    }
}

/// Makes the counter of the pre-created namespaces that a node may have.
pub(crate) fn bound() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MOST))
}
