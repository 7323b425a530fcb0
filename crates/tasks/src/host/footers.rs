//! The footers of data files, kept between queries, so that the next query over the same files
//! needs no request for them (the central statistics of Lambada 5.3).
//!
//! Boundary: the bytes come from a query's driver, which has read untrusted files, and go only to
//! other drivers. Nothing here decodes them. Invariant: what a query has kept is given to queries
//! of the same tenant and the same credentials only, because both are part of its name on disk.

use std::collections::{BTreeMap, HashMap};
use std::fs::{DirEntry, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use snowmelt_types::{Digest, Tenant};
use snowmelt_wire::{MAX_KEPT_FOOTER, MAX_KEPT_NAME};

/// The most bytes of all footers; those that were not used for the longest time are removed.
const MAX_BYTES: u64 = 256 << 20;

/// The least bytes that a footer is counted with, because a small file takes that much of a disk.
const LEAST_BYTES: u64 = 4 << 10;

/// The variables that decide which objects a query can read.
const IDENTITY: [&str; 3] = ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ACCESS_KEY_ID"];

/// The tenant and credentials of a query, which decide whose footers it may have.
#[derive(Clone, Debug)]
pub(crate) struct FooterScope(Digest);

impl FooterScope {
    /// Returns the scope of a query of a tenant with these environment variables.
    pub(crate) fn new(tenant: &Tenant, aws: &BTreeMap<String, String>) -> Self {
        let variables = IDENTITY.map(|name| aws.get(name).map_or("", String::as_str));
        Self(Digest::of_parts([tenant.as_str()].into_iter().chain(variables)))
    }

    fn file(&self, name: &str) -> String {
        Digest::of_parts([self.0.as_str(), name]).to_string()
    }
}

/// A folder with a file for each footer.
#[derive(Debug)]
pub(crate) struct FooterStore {
    folder: PathBuf,
    most: u64,
    // Read from the folder when the first footer is kept.
    index: Mutex<Option<FooterIndex>>,
}

#[derive(Debug, Default)]
struct FooterIndex {
    bytes: u64,
    // Counts the uses.
    clock: u64,
    files: HashMap<String, (u64, u64)>,
    by_use: BTreeMap<u64, String>,
}

impl FooterStore {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, most: MAX_BYTES, index: Mutex::default() }
    }

    /// Reads a footer that was kept. Blocks on the disk.
    pub(crate) fn get(&self, scope: &FooterScope, name: &str) -> Option<Vec<u8>> {
        let name = scope.file(name);
        let mut file = File::open(self.folder.join(&name)).ok()?;
        let mut footer = Vec::new();
        file.read_to_end(&mut footer).ok()?;
        // For who reads the folder later, and knows only the times of the files.
        _ = file.set_modified(SystemTime::now());
        if let Some(index) = self.lock().as_mut() {
            index.touch(&name);
        }
        Some(footer)
    }

    /// Keeps a footer, unless it is too long. A failure is only logged: the footer is read again.
    /// Blocks on the disk.
    pub(crate) fn put(&self, scope: &FooterScope, name: &str, footer: &[u8]) {
        if name.len() > MAX_KEPT_NAME || footer.len() > MAX_KEPT_FOOTER {
            return;
        }
        let file = scope.file(name);
        if let Err(error) = self.write(&self.folder.join(&file), footer) {
            tracing::warn!(%error, "a footer was not kept");
            return;
        }
        let mut index = self.lock();
        let index = index.get_or_insert_with(|| self.read_folder());
        index.add(file, footer.len() as u64);
        while index.bytes > self.most
            && let Some(oldest) = index.remove_oldest()
        {
            _ = std::fs::remove_file(self.folder.join(oldest));
        }
    }

    /// Writes a footer. A file that has its final name is complete.
    fn write(&self, path: &Path, footer: &[u8]) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        file.write_all(footer)?;
        file.persist(path)?;
        Ok(())
    }

    /// Lists the files of the folder, in the order of their times. Other files, which a crash has
    /// left, are removed.
    fn read_folder(&self) -> FooterIndex {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut found: Vec<(SystemTime, String, u64)> = Vec::new();
        for entry in entries {
            match kept(&entry) {
                Some(file) => found.push(file),
                None => _ = std::fs::remove_file(entry.path()),
            }
        }
        found.sort();
        let mut index = FooterIndex::default();
        found.into_iter().for_each(|(_, file, bytes)| index.add(file, bytes));
        index
    }

    fn lock(&self) -> MutexGuard<'_, Option<FooterIndex>> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn kept(entry: &DirEntry) -> Option<(SystemTime, String, u64)> {
    let metadata = entry.metadata().ok()?;
    let name = entry.file_name().into_string().ok()?;
    let is_digest = name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    Some((metadata.modified().ok()?, name, metadata.len())).filter(|_| is_digest)
}

impl FooterIndex {
    /// Notes a use of a file.
    fn touch(&mut self, file: &str) {
        if let Some((_, bytes)) = self.files.get(file) {
            self.add(file.to_owned(), *bytes);
        }
    }

    fn add(&mut self, file: String, bytes: u64) {
        let bytes = bytes.max(LEAST_BYTES);
        self.clock += 1;
        if let Some((used, before)) = self.files.insert(file.clone(), (self.clock, bytes)) {
            self.by_use.remove(&used);
            self.bytes -= before;
        }
        self.by_use.insert(self.clock, file);
        self.bytes += bytes;
    }

    fn remove_oldest(&mut self) -> Option<String> {
        let (_, file) = self.by_use.pop_first()?;
        let (_, bytes) = self.files.remove(&file)?;
        self.bytes -= bytes;
        Some(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(tenant: &str, key: &str) -> FooterScope {
        let aws = BTreeMap::from([("AWS_ACCESS_KEY_ID".to_owned(), key.to_owned())]);
        FooterScope::new(&tenant.parse().unwrap(), &aws)
    }

    #[test]
    fn a_footer_is_given_to_its_tenant_with_the_same_key_only() {
        let folder = tempfile::tempdir().unwrap();
        let store = FooterStore::new(folder.path().join("footers"));
        let own = scope("a", "key");
        assert!(store.get(&own, "x\n1").is_none());
        store.put(&own, "x\n1", b"footer");
        assert_eq!(store.get(&own, "x\n1").unwrap(), b"footer");
        for (other, name) in [
            (scope("b", "key"), "x\n1"),
            (scope("a", "other"), "x\n1"),
            (scope("a", "key"), "x\n2"),
        ] {
            assert!(store.get(&other, name).is_none());
        }
    }

    #[test]
    fn what_was_kept_is_there_after_a_restart_and_what_a_crash_left_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let own = scope("a", "key");
        FooterStore::new(folder.path().into()).put(&own, "x", b"footer");
        std::fs::write(folder.path().join(".tmpAbC"), "torn").unwrap();
        let store = FooterStore::new(folder.path().into());
        assert_eq!(store.get(&own, "x").unwrap(), b"footer");
        assert!(store.lock().is_none(), "the folder is not read before an answer");
        store.put(&own, "y", b"footer");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_use_before_the_folder_is_read_counts() {
        let folder = tempfile::tempdir().unwrap();
        let own = scope("a", "key");
        let most = 2 * LEAST_BYTES;
        for name in ["1", "2"] {
            FooterStore::new(folder.path().into()).put(&own, name, b"footer");
            let file = File::open(folder.path().join(own.file(name))).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
        let store = FooterStore { most, ..FooterStore::new(folder.path().into()) };
        store.get(&own, "1").unwrap();
        store.put(&own, "3", b"footer");
        assert!(store.get(&own, "2").is_none() && store.get(&own, "1").is_some());
    }

    #[test]
    fn the_least_recently_used_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let own = scope("a", "key");
        let most = 3 * LEAST_BYTES;
        let store = FooterStore { most, ..FooterStore::new(folder.path().into()) };
        for name in ["1", "2", "3"] {
            store.put(&own, name, name.as_bytes());
        }
        store.get(&own, "1").unwrap();
        store.put(&own, "4", b"4");
        let found = |name: &&str| store.get(&own, name).is_some();
        assert_eq!(["1", "2", "3", "4"].iter().filter(|name| found(name)).count(), 3);
        assert!(!found(&"2"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
        // A new footer of the same name takes the place of the old one.
        store.put(&own, "4", b"new");
        assert_eq!(store.get(&own, "4").unwrap(), b"new");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn long_footers_are_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let store = FooterStore::new(folder.path().into());
        let own = scope("a", "key");
        store.put(&own, "x", &vec![0; MAX_KEPT_FOOTER + 1]);
        assert!(store.get(&own, "x").is_none());
    }
}
