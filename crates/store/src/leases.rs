//! The leases of a store in this process, and their expiry.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::{Clock, Error, LeaseId, Result};

/// The pause after an expiry that could not be written.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Leases that have not ended.
#[derive(Debug)]
pub(crate) struct OpenLeases {
    clock: Clock,
    // Held for a lookup only.
    table: Mutex<LeaseTable>,
}

#[derive(Debug, Default)]
struct LeaseTable {
    last: u64,
    open: HashMap<LeaseId, Lease>,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    ttl: Duration,
    /// The end of the time to live, by the clock.
    until: Duration,
}

/// A backend with leases.
pub(crate) trait Leasing: Send + Sync + 'static {
    fn leases(&self) -> &OpenLeases;

    /// Ends a lease that has not ended, and deletes the keys under it.
    fn end(self: Arc<Self>, id: LeaseId) -> impl Future<Output = Result<()>> + Send;
}

impl OpenLeases {
    pub fn new(clock: Clock) -> Self {
        Self { clock, table: Mutex::default() }
    }

    fn grant(&self, ttl: Duration) -> LeaseId {
        let until = self.clock.now().saturating_add(ttl);
        let mut table = self.table();
        table.last += 1;
        let id = LeaseId(table.last);
        table.open.insert(id, Lease { ttl, until });
        id
    }

    pub fn keep_alive(&self, id: LeaseId) -> Result<()> {
        let now = self.clock.now();
        let mut table = self.table();
        let lease = table.open.get_mut(&id).filter(|lease| now < lease.until);
        let lease = lease.ok_or(Error::LeaseOver { lease: id })?;
        lease.until = now.saturating_add(lease.ttl);
        Ok(())
    }

    /// Refuses a lease that has ended or expired.
    pub fn check(&self, id: LeaseId) -> Result<()> {
        match self.until(id) {
            Some(until) if self.clock.now() < until => Ok(()),
            _ => Err(Error::LeaseOver { lease: id }),
        }
    }

    /// Removes a lease. Returns false if there is no such lease.
    pub fn remove(&self, id: LeaseId) -> bool {
        self.table().open.remove(&id).is_some()
    }

    /// Whether a lease has not ended; it may have expired.
    pub fn is_open(&self, id: LeaseId) -> bool {
        self.until(id).is_some()
    }

    fn until(&self, id: LeaseId) -> Option<Duration> {
        self.table().open.get(&id).map(|lease| lease.until)
    }

    fn table(&self) -> MutexGuard<'_, LeaseTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Grants a lease, and starts a task that ends it when it expires. The task does not keep the store
/// open.
pub(crate) fn grant(store: &Arc<impl Leasing>, ttl: Duration) -> LeaseId {
    let id = store.leases().grant(ttl);
    tokio::spawn(end_in_time(Arc::downgrade(store), id));
    id
}

/// Ends a lease before it expires.
///
/// # Errors
/// [`Error::LeaseOver`] if the lease has ended or expired.
pub(crate) async fn revoke(store: &Arc<impl Leasing>, id: LeaseId) -> Result<()> {
    store.leases().check(id)?;
    Arc::clone(store).end(id).await
}

async fn end_in_time<S: Leasing>(store: Weak<S>, id: LeaseId) {
    while let Some(found) = store.upgrade() {
        let clock = found.leases().clock.clone();
        let until = found.leases().until(id);
        let Some(until) = until else { return };
        if clock.now() < until {
            // The task must not keep the store open while it sleeps.
            drop(found);
            clock.sleep_until(until).await;
        } else if let Err(error) = found.end(id).await
            && !matches!(error, Error::LeaseOver { .. })
        {
            tracing::warn!(lease = %id, %error, "the expiry of a lease cannot be written");
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }
}
