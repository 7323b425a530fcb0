//! The blocks that are being fetched: if several readers need a block, one fetches it and the
//! others wait.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::block::BlockDigest;

/// The blocks in flight. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct InFlight(Arc<State>);

#[derive(Default)]
struct State {
    claimed: Mutex<HashSet<BlockDigest>>,
    released: Notify,
}

/// Blocks that only the owner of this claim fetches; dropping it releases them.
pub(super) struct BlockClaim {
    in_flight: InFlight,
    digests: Vec<BlockDigest>,
}

impl InFlight {
    /// Claims all of these blocks, or none if one of them is claimed already.
    pub fn claim(&self, digests: &[BlockDigest]) -> Option<BlockClaim> {
        let mut claimed = self.0.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        if digests.iter().any(|digest| claimed.contains(digest)) {
            return None;
        }
        claimed.extend(digests);
        Some(BlockClaim { in_flight: self.clone(), digests: digests.to_vec() })
    }

    /// Claims those of these blocks that are not claimed yet.
    pub fn claim_free(&self, digests: &[BlockDigest]) -> BlockClaim {
        let mut claimed = self.0.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        let free = digests.iter().filter(|digest| !claimed.contains(digest));
        let digests: Vec<BlockDigest> = free.copied().collect();
        claimed.extend(&digests);
        BlockClaim { in_flight: self.clone(), digests }
    }

    /// Waits until one of these blocks may have been released.
    pub async fn wait(&self, digests: &[BlockDigest]) {
        let released = self.0.released.notified();
        tokio::pin!(released);
        // Registered before the check, so that a release in between is not missed.
        released.as_mut().enable();
        let busy = {
            let claimed = self.0.claimed.lock().unwrap_or_else(PoisonError::into_inner);
            digests.iter().any(|digest| claimed.contains(digest))
        };
        if busy {
            released.await;
        }
    }
}

impl BlockClaim {
    /// Releases one block that has arrived; the claim to the others remains.
    pub fn release(&mut self, digest: &BlockDigest) {
        // First, so that a drop does not release what another reader has claimed since.
        self.digests.retain(|other| other != digest);
        let mut claimed = self.in_flight.0.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        claimed.remove(digest);
        drop(claimed);
        self.in_flight.0.released.notify_waiters();
    }

    /// Returns whether this claim includes a block.
    pub fn has(&self, digest: &BlockDigest) -> bool {
        self.digests.contains(digest)
    }
}

impl Drop for BlockClaim {
    fn drop(&mut self) {
        let mut claimed = self.in_flight.0.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        self.digests.iter().for_each(|digest| {
            claimed.remove(digest);
        });
        // Before the waiters wake up, whose first step is this lock.
        drop(claimed);
        self.in_flight.0.released.notify_waiters();
    }
}
