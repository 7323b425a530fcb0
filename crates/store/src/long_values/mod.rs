//! A store whose long values are files of a folder, by their digest: etcd takes only short ones.
//!
//! Boundary: the folder is on a disk that all processes of the store share. Invariants: a file is
//! complete and on the disk before a value names it. It is removed an hour after its last use at the
//! earliest, if no value names it now nor at the sweep before: a list of an earlier revision may read
//! it.

mod sweep;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use snowmelt_types::Digest;

use crate::{Committed, EntryPage, Error, KeyChange, KeyOperation, LeaseId, Page, Result, Since};
use crate::{Store, StoreEntry, Transaction, Watch};
use sweep::{ASIDE, remove_unnamed};

/// The first bytes of a value that names a file. No JSON begins so.
const MARK: &[u8] = b"\0file ";
/// The age at which a file that no value names is removed: a transaction may be about to name it.
const UNNAMED_KEPT: Duration = Duration::from_secs(3600);
/// The entries that are read at once to find the files that are named.
const SWEPT_AT_ONCE: usize = 256;

/// A store with a folder for long values. Clones of it are the same store.
#[derive(Clone, Debug)]
pub struct LongValues {
    store: Arc<dyn Store>,
    folder: Arc<Path>,
    longest: usize,
    /// The files that no value named at the last sweep.
    unnamed: Arc<Mutex<HashSet<String>>>,
}

impl LongValues {
    /// Keeps values that are longer than `longest` bytes in a folder, which is made if it is
    /// missing.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder cannot be made.
    pub fn new(store: Arc<dyn Store>, folder: &Path, longest: usize) -> Result<Self> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|source| unusable(folder, source))?;
        Ok(Self { store, folder: folder.into(), longest, unnamed: Arc::default() })
    }

    /// Removes files that no value names since the sweep before, and returns their number. What cannot
    /// be removed is left, and the first such file is the error.
    pub async fn sweep(&self) -> Result<u64> {
        let before = SystemTime::now() - UNNAMED_KEPT;
        self.sweep_before(before).await
    }

    async fn sweep_before(&self, before: SystemTime) -> Result<u64> {
        let mut named = HashSet::new();
        let mut page = Page::first(SWEPT_AT_ONCE);
        loop {
            let listed = self.store.list("", page).await?;
            named.extend(listed.entries.iter().filter_map(|entry| file_of(&entry.value)));
            match listed.entries.last().filter(|_| listed.more) {
                Some(last) => page = Page::after(&*last.key, SWEPT_AT_ONCE),
                None => break,
            }
        }
        let folder = Arc::clone(&self.folder);
        let unnamed = Arc::clone(&self.unnamed);
        blocking(&self.folder, move || {
            let mut earlier = unnamed.lock().unwrap_or_else(PoisonError::into_inner);
            let swept = remove_unnamed(&folder, &named, &earlier, before)?;
            *earlier = swept.left;
            swept.failure.map_or(Ok(swept.removed), Err)
        })
        .await
    }

    /// Writes the long values of a transaction to files, and names these instead.
    async fn shortened(&self, mut transaction: Transaction) -> Result<Transaction> {
        for operation in &mut transaction.operations {
            if let KeyOperation::Put { value, .. } = operation
                && (value.len() > self.longest || value.starts_with(MARK))
            {
                let folder = Arc::clone(&self.folder);
                let long = value.clone();
                *value = blocking(&self.folder, move || write(&folder, &long)).await?;
            }
        }
        Ok(transaction)
    }

    /// The value that was put, of a value in the store. `None` if its file is missing.
    async fn whole(&self, value: Bytes) -> Result<Option<Bytes>> {
        let Some(name) = file_of(&value) else { return Ok(Some(value)) };
        let path = self.folder.join(&name);
        let aside = self.folder.join(format!("{ASIDE}{name}"));
        // A sweep may have moved it, and moved it back.
        blocking(&self.folder, move || {
            for path in [&path, &aside, &path] {
                match std::fs::read(path) {
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    read => return read.map(|long| Some(long.into())),
                }
            }
            Ok(None)
        })
        .await
    }

    fn missing(&self, key: &str) -> Error {
        let what = format!("the file of `{key}` is missing: do all controls share this folder?");
        Error::Corrupt { place: self.folder.display().to_string(), what }
    }
}

#[async_trait]
impl Store for LongValues {
    async fn get(&self, key: &str) -> Result<Option<StoreEntry>> {
        let mut last = None;
        loop {
            let Some(entry) = self.store.get(key).await? else { return Ok(None) };
            if let Some(value) = self.whole(entry.value).await? {
                return Ok(Some(StoreEntry { value, ..entry }));
            }
            // Another process may have replaced the value and removed its file.
            if last.replace(entry.version) == Some(entry.version) {
                return Err(self.missing(key));
            }
        }
    }

    async fn list(&self, prefix: &str, page: Page) -> Result<EntryPage> {
        let mut listed = self.store.list(prefix, page).await?;
        for entry in &mut listed.entries {
            let whole = self.whole(std::mem::take(&mut entry.value)).await?;
            entry.value = whole.ok_or_else(|| self.missing(&entry.key))?;
        }
        Ok(listed)
    }

    async fn transaction(&self, transaction: Transaction) -> Result<Committed> {
        self.store.transaction(self.shortened(transaction).await?).await
    }

    async fn watch(&self, prefix: &str, since: Since) -> Result<Watch> {
        let values = self.clone();
        let changes = self.store.watch(prefix, since).await?;
        let whole = move |event: Result<crate::StoreEvent>| {
            let values = values.clone();
            async move {
                let mut event = event?;
                if let KeyChange::Put(value) = event.change {
                    let whole = values.whole(value).await?;
                    let value = whole.ok_or_else(|| values.missing(&event.key))?;
                    event.change = KeyChange::Put(value);
                }
                Ok(event)
            }
        };
        Ok(changes.then(whole).boxed())
    }

    async fn lease(&self, ttl: Duration) -> Result<LeaseId> {
        self.store.lease(ttl).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<()> {
        self.store.keep_alive(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<()> {
        self.store.revoke(lease).await
    }
}

/// The name of the file that a value names.
fn file_of(value: &[u8]) -> Option<String> {
    let name = value.strip_prefix(MARK)?;
    String::from_utf8(name.to_vec()).ok()
}

fn write(folder: &Path, long: &[u8]) -> std::io::Result<Bytes> {
    let name = Digest::of(long).as_str().replace(':', "-");
    let path = folder.join(&name);
    if !is_used_again(&path)? {
        let partial = folder.join(partial_name());
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&partial)?;
        file.write_all(long)?;
        file.sync_all()?;
        std::fs::rename(&partial, &path)?;
        File::open(folder)?.sync_all()?;
    }
    Ok([MARK, name.as_bytes()].concat().into())
}

/// Notes that a file is used now, so that no sweep removes it. False if it is not there, also if a
/// sweep has moved it meanwhile: it may not have seen the note.
fn is_used_again(path: &Path) -> std::io::Result<bool> {
    let absent = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => Ok(false),
        _ => Err(error),
    };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return absent(error),
    };
    file.set_modified(SystemTime::now())?;
    let used = file.metadata()?;
    std::fs::metadata(path).map_or_else(absent, |found| Ok(found.ino() == used.ino()))
}

/// A name that no other write has, also of processes on other hosts.
fn partial_name() -> String {
    static WRITES: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let number = WRITES.fetch_add(1, Ordering::Relaxed);
    format!("new-{}-{}-{number}", since.as_nanos(), std::process::id())
}

async fn blocking<T: Send + 'static>(
    folder: &Path,
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.unwrap_or_else(|error| Err(std::io::Error::other(error.to_string())));
    done.map_err(|source| unusable(folder, source))
}

fn unusable(folder: &Path, source: std::io::Error) -> Error {
    let place = PathBuf::from(folder).display().to_string();
    match source.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Error::Full { place, source },
        _ => Error::Io { place, source },
    }
}
