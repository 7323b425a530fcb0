//! A store in the memory of one process, for tests.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::apply::{StoreRows, apply};
use crate::history::{Bounds, History};
use crate::leases::{Leasing, OpenLeases, grant, revoke};
use crate::{Clock, Committed, EntryPage, Error, LeaseId, Page, Result, Revision, StoreEntry};
use crate::{KeyVersion, Since, Store, Transaction, Watch};

/// A store in memory. Clones of it are the same store.
#[derive(Clone, Debug)]
pub struct Memory {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    leases: OpenLeases,
    history: History,
    // Locked for one operation. The history is written under the lock, so that it has the order
    // of the revisions.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    revision: Revision,
    rows: BTreeMap<String, MemoryRow>,
}

#[derive(Debug)]
struct MemoryRow {
    value: Bytes,
    version: KeyVersion,
    lease: Option<LeaseId>,
}

impl Memory {
    /// Makes an empty store, whose leases use this clock.
    pub fn new(clock: Clock) -> Self {
        let history = History::new(Revision::default(), Bounds::default());
        let state = Mutex::default();
        Self { inner: Arc::new(Inner { leases: OpenLeases::new(clock), history, state }) }
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, state: &mut State, transaction: Transaction) -> Result<Committed> {
        let at = state.revision;
        let applied = apply(&mut state.rows, transaction, at)?;
        state.revision = applied.committed.revision;
        self.history.push(applied.events);
        Ok(applied.committed)
    }
}

/// The rows of the store. No operation fails after the first write, so there is nothing to roll
/// back.
impl StoreRows for BTreeMap<String, MemoryRow> {
    type Failure = Error;

    fn version(&self, key: &str) -> Result<Option<KeyVersion>> {
        Ok(self.get(key).map(|row| row.version))
    }

    fn put(
        &mut self,
        key: &str,
        value: &Bytes,
        version: KeyVersion,
        lease: Option<LeaseId>,
    ) -> Result<()> {
        self.insert(key.to_owned(), MemoryRow { value: value.clone(), version, lease });
        Ok(())
    }

    fn delete(&mut self, key: &str) -> Result<()> {
        self.remove(key);
        Ok(())
    }
}

impl MemoryRow {
    fn entry(&self, key: &str) -> StoreEntry {
        StoreEntry { key: key.to_owned(), value: self.value.clone(), version: self.version }
    }
}

impl Leasing for Inner {
    fn leases(&self) -> &OpenLeases {
        &self.leases
    }

    async fn end(self: Arc<Self>, id: LeaseId) -> Result<()> {
        let mut state = self.state();
        if !self.leases.remove(id) {
            return Err(Error::LeaseOver { lease: id });
        }
        let under = state.rows.iter().filter(|(_, row)| row.lease == Some(id));
        let keys: Vec<String> = under.map(|(key, _)| key.clone()).collect();
        self.write(&mut state, Transaction::deleting(keys))?;
        Ok(())
    }
}

#[async_trait]
impl Store for Memory {
    async fn get(&self, key: &str) -> Result<Option<StoreEntry>> {
        Ok(self.inner.state().rows.get(key).map(|row| row.entry(key)))
    }

    async fn list(&self, prefix: &str, page: Page) -> Result<EntryPage> {
        let state = self.inner.state();
        let rows = state.rows.range::<str, _>((page.begin(prefix), Bound::Unbounded));
        let mut rows = rows.take_while(|(key, _)| key.starts_with(prefix));
        let limit = page.limit.unwrap_or(usize::MAX);
        let entries = rows.by_ref().take(limit).map(|(key, row)| row.entry(key)).collect();
        Ok(EntryPage { entries, more: rows.next().is_some(), revision: state.revision })
    }

    async fn transaction(&self, transaction: Transaction) -> Result<Committed> {
        let mut state = self.inner.state();
        transaction.leases().try_for_each(|lease| self.inner.leases.check(lease))?;
        self.inner.write(&mut state, transaction)
    }

    async fn watch(&self, prefix: &str, since: Since) -> Result<Watch> {
        self.inner.history.watch(prefix, since)
    }

    async fn lease(&self, ttl: Duration) -> Result<LeaseId> {
        Ok(grant(&self.inner, ttl))
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<()> {
        self.inner.leases.keep_alive(lease)
    }

    async fn revoke(&self, lease: LeaseId) -> Result<()> {
        revoke(&self.inner, lease).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{Rig, conformance_tests};

    struct InMemory {
        store: Memory,
        clock: Clock,
    }

    impl InMemory {
        fn new() -> Self {
            let clock = Clock::paused();
            Self { store: Memory::new(clock.clone()), clock }
        }
    }

    #[async_trait]
    impl Rig for InMemory {
        fn store(&self) -> Arc<dyn Store> {
            Arc::new(self.store.clone())
        }

        async fn pass(&self, time: Duration) {
            self.clock.advance(time);
        }
    }

    conformance_tests!(InMemory::new());
}
