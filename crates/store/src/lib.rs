//! The store of acknowledged state: keys with versions, transactions, watches and leases. The
//! semantics are those of etcd, so that one machine and a cluster use the same trait.
//!
//! Boundary: values are bytes; their types belong to the crates that write them. Invariant: an
//! acknowledged write survives a crash of every process, except in [`memory`] and for keys under a
//! lease.

mod apply;
mod clock;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod error;
pub mod etcd;
mod history;
mod leases;
mod long_values;
pub mod memory;
mod model;
pub mod redb;
mod transaction;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

pub use clock::Clock;
pub use error::{Error, Result};
pub use long_values::LongValues;
pub use model::{
    EntryPage, Expect, KeyChange, KeyVersion, LeaseId, Page, Revision, Since, StoreEntry,
    StoreEvent,
};
pub use transaction::{Committed, KeyOperation, Transaction};

/// Events in the order of their revisions. The stream ends when the store is closed, and after its
/// first error.
pub type Watch = BoxStream<'static, Result<StoreEvent>>;

/// A store of keys and values.
///
/// Every transaction that changes a key increments the [`Revision`] of the store. Keys are UTF-8
/// and sort by their bytes. If the future of a write is dropped, the write is applied as a whole or
/// not at all.
#[async_trait]
pub trait Store: std::fmt::Debug + Send + Sync {
    /// The entry of a key.
    async fn get(&self, key: &str) -> Result<Option<StoreEntry>>;

    /// The entries whose keys begin with a prefix, in the order of keys. A page is one snapshot;
    /// two pages may have different revisions.
    async fn list(&self, prefix: &str, page: Page) -> Result<EntryPage>;

    /// Applies all operations, or none of them.
    ///
    /// # Errors
    /// [`Error::Conflict`] if a key does not have the version that an operation expects.
    async fn transaction(&self, transaction: Transaction) -> Result<Committed>;

    /// Reports all changes of keys that begin with a prefix.
    ///
    /// # Errors
    /// [`Error::Compacted`], here or in the stream, if the next event is no longer retained. Then
    /// list again, and watch from the revision after that of the list.
    async fn watch(&self, prefix: &str, since: Since) -> Result<Watch>;

    /// Creates a lease. If it is not kept alive within its time to live, it expires: the keys
    /// that were put under it are deleted in one transaction.
    async fn lease(&self, ttl: Duration) -> Result<LeaseId>;

    /// Restarts the time to live of a lease.
    ///
    /// # Errors
    /// [`Error::LeaseOver`] if the lease was revoked or has expired.
    async fn keep_alive(&self, lease: LeaseId) -> Result<()>;

    /// Ends a lease immediately, and deletes the keys that were put under it.
    ///
    /// # Errors
    /// [`Error::LeaseOver`] if the lease has ended already.
    async fn revoke(&self, lease: LeaseId) -> Result<()>;

    /// Writes one key, and returns its new version.
    async fn put(&self, key: &str, value: Bytes, expect: Expect) -> Result<KeyVersion> {
        let done = self.transaction(Transaction::new().put(key, value, expect)).await?;
        Ok(done.version())
    }

    /// Deletes one key, and returns the version that it had.
    async fn delete(&self, key: &str, expect: Expect) -> Result<Option<KeyVersion>> {
        let done = self.transaction(Transaction::new().delete(key, expect)).await?;
        Ok(done.found.into_iter().next().flatten())
    }
}
