//! The embedded store: one redb file, for the user of its process only.
//!
//! A server holds the file open. Embedded runs open it for one transaction each and wait for each
//! other, so that two concurrent commands both succeed; for a server they do not wait. Watches and
//! leases need a process that keeps running, so only a store that is held open supports them.

mod convert;
mod copies;
#[cfg(test)]
mod crash;
mod file;
mod rows;
#[cfg(test)]
mod tests;
mod write_failure;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::redb::{ReadTransaction, ReadableDatabase};
use async_trait::async_trait;

use crate::apply::apply;
use crate::history::{Bounds, History};
use crate::leases::{Leasing, OpenLeases, grant, revoke};
use crate::{Clock, Committed, EntryPage, Error, LeaseId, Page, Result, Revision, StoreEntry};
use crate::{Since, Store, Transaction, Watch};
pub use convert::{Convert, Older};
pub use copies::check;
use file::DatabaseFile;
use rows::{WriteTables, entry, leased, list, revision};
use write_failure::WriteFailure;

/// A store in a file. Clones of it are the same store.
#[derive(Clone, Debug)]
pub struct Redb {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: DatabaseFile,
    /// The history of changes. Absent if the file is opened for each transaction: changes of other
    /// processes would be missing.
    history: Option<History>,
    leases: OpenLeases,
    // Locked for one write. If the file is opened for each transaction, also for one read, since
    // redb allows one open handle. The history is written under the lock, so that it has the order
    // of the revisions.
    exclusive: Mutex<()>,
}

impl Redb {
    /// Opens a file for this process only, and creates it if it is missing. Waits for processes
    /// that have it open for one transaction.
    ///
    /// Keys under leases of an earlier process are deleted: no process keeps these leases alive.
    ///
    /// # Errors
    /// [`Error::Busy`] if another process holds the file open, and others if the file cannot be
    /// used.
    pub fn hold(path: PathBuf, convert: Option<Arc<dyn Convert>>, clock: Clock) -> Result<Self> {
        let file = DatabaseFile::new(path, convert, true);
        let at = file.run(|database| revision(&database.begin_read()?))?;
        let history = Some(History::new(at, Bounds::default()));
        let leases = OpenLeases::new(clock);
        let exclusive = Mutex::default();
        let inner = Inner { file, history, leases, exclusive };
        inner.delete_leased(None)?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Opens a file for each transaction; the first write creates it if it is missing. Transactions
    /// end with [`Error::Busy`] at once while another process holds the file open.
    pub fn visit(path: PathBuf, convert: Option<Arc<dyn Convert>>) -> Self {
        let file = DatabaseFile::new(path, convert, false);
        let leases = OpenLeases::new(Clock::real());
        let exclusive = Mutex::default();
        Self { inner: Arc::new(Inner { file, history: None, leases, exclusive }) }
    }

    /// Writes the entries of one snapshot to a new file, without those under a lease, and returns
    /// the revision of the snapshot. The file gets its name when it is complete.
    ///
    /// # Errors
    /// [`Error::Io`] if there is a file with this name, and others for either file.
    pub async fn copy_to(&self, path: PathBuf) -> Result<Revision> {
        self.blocking(move |inner| copies::copy(&inner.file, &path)).await
    }

    /// The number of transactions that have changed the store.
    pub async fn revision(&self) -> Result<Revision> {
        self.blocking(|inner| inner.read(revision)).await
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        self.inner.file.path()
    }

    fn history(&self) -> Result<&History> {
        let what = "watches and leases if its file is opened for each transaction";
        self.inner.history.as_ref().ok_or(Error::Unsupported { what })
    }

    /// Runs disk I/O on a thread for blocking work. It completes even if the caller is dropped.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        blocking(Arc::clone(&self.inner), work).await
    }
}

async fn blocking<T: Send + 'static>(
    inner: Arc<Inner>,
    work: impl FnOnce(&Inner) -> Result<T> + Send + 'static,
) -> Result<T> {
    let place = inner.file.place();
    let done = tokio::task::spawn_blocking(move || work(&inner)).await;
    done.unwrap_or_else(|error| {
        Err(Error::Io { place, source: std::io::Error::other(error.to_string()) })
    })
}

impl Inner {
    fn read<T: Default>(
        &self,
        work: impl FnOnce(&ReadTransaction) -> Result<T, WriteFailure>,
    ) -> Result<T> {
        // A read does not create the file.
        if !self.file.exists() {
            return Ok(T::default());
        }
        let _locked = self.history.is_none().then(|| self.lock());
        self.file.run(|database| work(&database.begin_read()?))
    }

    fn transact(&self, transaction: Transaction) -> Result<Committed> {
        let locked = self.lock();
        transaction.leases().try_for_each(|lease| self.leases.check(lease))?;
        self.write(&locked, transaction)
    }

    fn write(&self, _locked: &MutexGuard<'_, ()>, transaction: Transaction) -> Result<Committed> {
        let applied = self.file.run(|database| {
            let write = database.begin_write()?;
            let mut opened = WriteTables::of(&write)?;
            let at = opened.revision()?;
            self.resync(at);
            let applied = apply(&mut opened, transaction, at)?;
            if applied.events.is_empty() {
                drop(opened);
                write.abort()?;
                return Ok(applied);
            }
            opened.set_revision(applied.committed.revision)?;
            drop(opened);
            write.commit()?;
            Ok(applied)
        })?;
        if let Some(history) = &self.history {
            history.push(applied.events);
        }
        Ok(applied.committed)
    }

    /// Ends all watches if the store is at another revision than the history. After a failure the
    /// file is closed and opened again, and another process may have written in between. Then
    /// watches end with an error instead of missing changes.
    fn resync(&self, at: Revision) {
        if let Some(history) = &self.history {
            history.resync(at);
        }
    }

    /// Deletes the keys under a lease, or under all leases.
    fn delete_leased(&self, lease: Option<LeaseId>) -> Result<()> {
        let locked = self.lock();
        let keys = self.file.run(|database| leased(&database.begin_read()?, lease))?;
        if !keys.is_empty() {
            self.write(&locked, Transaction::deleting(keys))?;
        }
        if let Some(lease) = lease {
            self.leases.remove(lease);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.exclusive.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Leasing for Inner {
    fn leases(&self) -> &OpenLeases {
        &self.leases
    }

    async fn end(self: Arc<Self>, id: LeaseId) -> Result<()> {
        if !self.leases.is_open(id) {
            return Err(Error::LeaseOver { lease: id });
        }
        blocking(self, move |inner| inner.delete_leased(Some(id))).await
    }
}

#[async_trait]
impl Store for Redb {
    async fn get(&self, key: &str) -> Result<Option<StoreEntry>> {
        let key = key.to_owned();
        self.blocking(move |inner| inner.read(|transaction| entry(transaction, &key))).await
    }

    async fn list(&self, prefix: &str, page: Page) -> Result<EntryPage> {
        let prefix = prefix.to_owned();
        let work = move |inner: &Inner| inner.read(|read| list(read, &prefix, &page));
        self.blocking(work).await
    }

    async fn transaction(&self, transaction: Transaction) -> Result<Committed> {
        self.blocking(move |inner| inner.transact(transaction)).await
    }

    async fn watch(&self, prefix: &str, since: Since) -> Result<Watch> {
        self.history()?.watch(prefix, since)
    }

    async fn lease(&self, ttl: Duration) -> Result<LeaseId> {
        self.history()?;
        Ok(grant(&self.inner, ttl))
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<()> {
        self.inner.leases.keep_alive(lease)
    }

    async fn revoke(&self, lease: LeaseId) -> Result<()> {
        revoke(&self.inner, lease).await
    }
}
