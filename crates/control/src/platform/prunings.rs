//! The removals of unused data that run or wait.
//!
//! Invariant: one removal runs at a time, because each reads all entries of its owner and writes to
//! the store that every call needs. An owner has one at most, so a tenant that asks all the time
//! delays the others by one turn.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snowmelt_types::{Code, ErrorReport, Tenant};

/// The removals of a platform. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prunings {
    turn: Arc<tokio::sync::Mutex<()>>,
    owners: Arc<Mutex<BTreeSet<Option<Tenant>>>>,
}

/// The one removal of an owner, until it is dropped.
#[derive(Debug)]
pub(crate) struct PruningClaim {
    owner: Option<Tenant>,
    of: Prunings,
}

impl Prunings {
    /// Claims the removal of a tenant, or of the operators (`None`). Refuses a second one of an
    /// owner.
    pub fn claim(&self, owner: Option<&Tenant>) -> Result<PruningClaim, ErrorReport> {
        if self.owners().insert(owner.cloned()) {
            return Ok(PruningClaim { owner: owner.cloned(), of: self.clone() });
        }
        let whose = owner.map(|tenant| format!(" for `{tenant}`")).unwrap_or_default();
        let message = format!("a removal of what nothing uses is running{whose}");
        Err(ErrorReport::new(Code::PRUNING_RUNS, message)
            .hint("wait for its answer, and try again"))
    }

    /// Returns whether an owner has a removal that runs or waits.
    #[cfg(test)]
    pub fn has(&self, owner: Option<&Tenant>) -> bool {
        self.owners().contains(&owner.cloned())
    }

    fn owners(&self) -> MutexGuard<'_, BTreeSet<Option<Tenant>>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PruningClaim {
    /// Waits until no other removal runs, in the order of arrival.
    pub async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.of.turn.lock().await
    }
}

impl Drop for PruningClaim {
    fn drop(&mut self) {
        self.of.owners().remove(&self.owner);
    }
}
