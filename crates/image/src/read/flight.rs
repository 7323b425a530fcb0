//! Who fetches which block now: of many that want the same, one fetches and the others wait.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::block::BlockDigest;

/// The blocks that are under way. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Flights(Arc<State>);

#[derive(Default)]
struct State {
    under_way: Mutex<HashSet<BlockDigest>>,
    landed: Notify,
}

/// Blocks that the holder alone fetches, until this is dropped.
pub(super) struct Claim {
    flights: Flights,
    digests: Vec<BlockDigest>,
}

impl Flights {
    /// Claims all of them or, if somebody has one of them, none.
    pub fn claim(&self, digests: &[BlockDigest]) -> Option<Claim> {
        let mut under_way = self.0.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if digests.iter().any(|digest| under_way.contains(digest)) {
            return None;
        }
        under_way.extend(digests);
        Some(Claim { flights: self.clone(), digests: digests.to_vec() })
    }

    /// Claims those of them that nobody has.
    pub fn claim_free(&self, digests: &[BlockDigest]) -> Claim {
        let mut under_way = self.0.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        let free = digests.iter().filter(|digest| !under_way.contains(digest));
        let digests: Vec<BlockDigest> = free.copied().collect();
        under_way.extend(&digests);
        Claim { flights: self.clone(), digests }
    }

    /// Waits until one of these may have become free.
    pub async fn wait(&self, digests: &[BlockDigest]) {
        let landed = self.0.landed.notified();
        tokio::pin!(landed);
        // Registered before looking, so that what lands in between is not missed.
        landed.as_mut().enable();
        let busy = {
            let under_way = self.0.under_way.lock().unwrap_or_else(PoisonError::into_inner);
            digests.iter().any(|digest| under_way.contains(digest))
        };
        if busy {
            landed.await;
        }
    }
}

impl Claim {
    /// This one is there; the holder goes on with the others.
    pub fn landed(&mut self, digest: &BlockDigest) {
        self.digests.retain(|other| other != digest);
        let mut under_way = self.flights.0.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.remove(digest);
        drop(under_way);
        self.flights.0.landed.notify_waiters();
    }

    /// Whether it is the holder who fetches this one.
    pub fn has(&self, digest: &BlockDigest) -> bool {
        self.digests.contains(digest)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut under_way = self.flights.0.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        self.digests.iter().for_each(|digest| {
            under_way.remove(digest);
        });
        drop(under_way);
        self.flights.0.landed.notify_waiters();
    }
}
