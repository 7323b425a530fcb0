//! A store whose long values are files of a folder, by their digest: etcd takes only short ones.
//!
//! Boundary: the folder is on a disk that all processes of the store share. Invariants: a file is
//! complete and on the disk before a value names it, and is removed an hour after its last use at
//! the earliest, if no value names it.

use std::collections::HashSet;
use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use snowmelt_types::Digest;

use crate::{Committed, EntryPage, Error, KeyChange, KeyOperation, LeaseId, Page, Result, Since};
use crate::{Store, StoreEntry, Transaction, Watch};

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
        Ok(Self { store, folder: folder.into(), longest })
    }

    /// Removes files that no value names any more, and returns their number.
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
        blocking(&self.folder, move || remove_unnamed(&folder, &named, before)).await
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
        let path = self.folder.join(name);
        blocking(&self.folder, move || match std::fs::read(&path) {
            Ok(long) => Ok(Some(long.into())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
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
    let now = SystemTime::now();
    match File::open(&path).and_then(|file| file.set_modified(now)) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let partial = folder.join(partial_name());
            let mut file =
                File::options().write(true).create_new(true).mode(0o600).open(&partial)?;
            file.write_all(long)?;
            file.sync_all()?;
            std::fs::rename(&partial, &path)?;
            File::open(folder)?.sync_all()?;
        }
        Err(error) => return Err(error),
    }
    Ok([MARK, name.as_bytes()].concat().into())
}

/// A name that no other write has, also of processes on other hosts.
fn partial_name() -> String {
    static WRITES: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let number = WRITES.fetch_add(1, Ordering::Relaxed);
    format!("new-{}-{}-{number}", since.as_nanos(), std::process::id())
}

fn remove_unnamed(
    folder: &Path,
    named: &HashSet<String>,
    before: SystemTime,
) -> std::io::Result<u64> {
    let mut removed = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !named.contains(&name) && entry.metadata()?.modified()? < before {
            std::fs::remove_file(entry.path())?;
            removed += 1;
        }
    }
    Ok(removed)
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

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::conformance::{Rig, conformance_tests};
    use crate::memory::Memory;
    use crate::{Clock, Expect};

    struct LongRig {
        store: LongValues,
        clock: Clock,
        folder: TempDir,
    }

    impl LongRig {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let clock = Clock::paused();
            let memory = Arc::new(Memory::new(clock.clone()));
            let store = LongValues::new(memory, folder.path(), 1).unwrap();
            Self { store, clock, folder }
        }

        fn files(&self) -> usize {
            std::fs::read_dir(self.folder.path()).unwrap().count()
        }
    }

    #[async_trait]
    impl Rig for LongRig {
        fn store(&self) -> Arc<dyn Store> {
            Arc::new(self.store.clone())
        }

        async fn pass(&self, time: Duration) {
            self.clock.advance(time);
        }
    }

    conformance_tests!(LongRig::new());

    #[tokio::test]
    async fn a_file_is_removed_when_no_value_names_it() {
        let rig = LongRig::new();
        let store = &rig.store;
        store.put("a", "long".into(), Expect::Any).await.unwrap();
        store.put("b", "long".into(), Expect::Any).await.unwrap();
        store.put("c", "s".into(), Expect::Any).await.unwrap();
        assert_eq!(rig.files(), 1);
        store.delete("a", Expect::Any).await.unwrap();
        let later = SystemTime::now() + Duration::from_secs(1);
        assert_eq!(store.sweep_before(later).await.unwrap(), 0);
        assert_eq!(store.get("b").await.unwrap().unwrap().value, "long");
        store.put("b", "s".into(), Expect::Any).await.unwrap();
        assert_eq!(store.sweep().await.unwrap(), 0, "a transaction may be about to name it");
        assert_eq!(store.sweep_before(later).await.unwrap(), 1);
        assert_eq!(rig.files(), 0);
    }

    #[tokio::test]
    async fn a_value_that_looks_like_the_name_of_a_file_is_kept_as_it_is() {
        let rig = LongRig::new();
        let forged = Bytes::from_static(b"\0file ../../etc/passwd");
        rig.store.put("a", forged.clone(), Expect::Any).await.unwrap();
        assert_eq!(rig.store.get("a").await.unwrap().unwrap().value, forged);
    }

    #[tokio::test]
    async fn a_missing_file_is_an_error_that_names_the_folder() {
        let rig = LongRig::new();
        rig.store.put("a", "long".into(), Expect::Any).await.unwrap();
        let later = SystemTime::now() + Duration::from_secs(1);
        remove_unnamed(rig.folder.path(), &HashSet::new(), later).unwrap();
        let missing = rig.store.get("a").await.unwrap_err();
        assert!(matches!(missing, Error::Corrupt { .. }), "{missing}");
        assert!(missing.to_string().contains("share this folder"), "{missing}");
    }
}
