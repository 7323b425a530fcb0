//! The blocks of a cache on the disk, with an index in memory; the least recently used blocks are
//! evicted.
//!
//! Invariant: a file gets its final name when it is complete. Only the owner evicts blocks.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

use super::journal::{BlockKey, Journal};
use super::lru_index::KeyUsage;
use crate::block::BlockDigest;
use crate::lock::{self, Lock, LockMode};
use crate::{Error, Result};

/// The folder of the tenants' blocks.
const TENANTS: &str = "tenants";

type BlockIndex = KeyUsage<BlockKey>;

/// The folder of the blocks of all tenants, as one process sees it.
pub(super) struct BlockFolder {
    folder: PathBuf,
    pub capacity: u64,
    index: Mutex<BlockIndex>,
    /// The number of blocks that were found damaged.
    pub damaged: AtomicU64,
    joined: Mutex<Journal>,
    /// The owner's lock, held as long as this value lives; the kernel releases it with the process.
    lock: OnceLock<Lock>,
}

impl BlockFolder {
    /// Makes the store of the blocks that are in the folder; this process is the owner if it has
    /// the lock.
    pub fn new(
        folder: &Path,
        capacity: u64,
        joined: Journal,
        lock: OnceLock<Lock>,
    ) -> Result<Self> {
        let index = Mutex::new(scan(folder)?);
        let damaged = AtomicU64::new(0);
        let folder = folder.to_owned();
        let joined = Mutex::new(joined);
        Ok(Self { folder, capacity, index, damaged, joined, lock })
    }

    /// Marks a block as used, if it is in the cache.
    pub fn touch(&self, key: &BlockKey) -> bool {
        self.index().touch(key) || (self.read_journal() && self.index().touch(key))
    }

    /// Adds the blocks that other processes stored to the index; false if there are none.
    pub fn read_journal(&self) -> bool {
        if !self.is_owner() {
            return false;
        }
        let updates = self.joined().updates();
        let is_new = !updates.is_empty();
        updates.into_iter().for_each(|(key, bytes)| self.index().add(key, bytes));
        if is_new {
            self.evict(0);
        }
        is_new
    }

    /// Returns whether this process may evict blocks.
    pub fn is_owner(&self) -> bool {
        self.lock.get().is_some()
    }

    /// Becomes the owner if there is none.
    pub fn promote(&self) -> bool {
        let mut joined = self.joined();
        if self.is_owner() {
            return true;
        }
        // The lock first; only its holder may empty the journal.
        let Ok(Some(lock)) = lock(&self.folder) else { return false };
        let Ok(journal) = Journal::begin(&self.folder) else { return false };
        // After the journal is empty, as in `BlockCache::open`; without a scan the lock is dropped
        // again.
        let Ok(found) = scan(&self.folder) else { return false };
        (*joined, *self.index()) = (journal, found);
        self.lock.set(lock).is_ok()
    }

    /// Returns whether `more` bytes fit without eviction.
    pub fn has_room(&self, more: u64) -> bool {
        self.index().bytes().saturating_add(more) <= self.capacity
    }

    /// Stores a block in a cache that another process owns.
    pub fn add_joined(&self, key: BlockKey, stored: &[u8]) -> Result<()> {
        let bytes = stored.len() as u64;
        if !self.has_room(bytes) {
            let reason = "it is full, and only the platform that owns it evicts blocks";
            return Err(Error::refused("the block cache", reason));
        }
        let written = match self.write(&key, stored) {
            // The new owner has just removed what it took for leftovers of an earlier process.
            Err(error) if error.is_missing() => self.write(&key, stored),
            outcome => outcome,
        };
        written?;
        // After the file has its name: the owner takes each line for a block that exists.
        self.joined().append(&key, bytes).map_err(Error::io("write in", &self.folder))?;
        self.index().add(key, bytes);
        Ok(())
    }

    /// Removes a block from the index if its file does not exist.
    pub fn forget(&self, key: &BlockKey) {
        let mut index = self.index();
        // Looked at under the lock: another thread may have written the block anew.
        if !self.path(key).exists() {
            index.remove(key);
        }
    }

    /// Writes a block's file; the caller adds it to the index.
    pub fn write(&self, key: &BlockKey, stored: &[u8]) -> Result<()> {
        let path = self.path(key);
        let folder = path.parent().unwrap_or(&self.folder);
        fs::create_dir_all(folder).map_err(Error::io("make the folder", folder))?;
        let tmp = self.folder.join("tmp");
        let mut file =
            tempfile::NamedTempFile::new_in(&tmp).map_err(Error::io("write in", &tmp))?;
        io::Write::write_all(&mut file, stored).map_err(Error::io("write", &path))?;
        file.persist(&path).map_err(|failed| Error::io("write", &path)(failed.error))?;
        Ok(())
    }

    /// Evicts blocks until `more` bytes fit.
    pub fn evict(&self, more: u64) {
        self.evict_to(self.capacity.saturating_sub(more));
    }

    /// Evicts blocks until at most `most` bytes are left.
    pub fn evict_to(&self, most: u64) {
        loop {
            let oldest = self.index().oldest_above(most);
            let Some(oldest) = oldest else { return };
            self.drop_block(&oldest);
        }
    }

    /// Removes a block from the index and the disk.
    pub fn drop_block(&self, key: &BlockKey) {
        self.index().remove(key);
        // The file may have been removed already.
        let _ = fs::remove_file(self.path(key));
    }

    /// Returns the path of a block's file.
    pub fn path(&self, (tenant, digest): &BlockKey) -> PathBuf {
        let name = digest.to_string();
        let parent = match tenant {
            None => self.folder.clone(),
            Some(tenant) => self.folder.join(TENANTS).join(tenant.to_string()),
        };
        parent.join(&name[..2]).join(name)
    }

    fn joined(&self) -> MutexGuard<'_, Journal> {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the locked index of the cached blocks.
    pub fn index(&self) -> MutexGuard<'_, BlockIndex> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the owner's lock; `None` if another process has it.
pub(super) fn lock(folder: &Path) -> Result<Option<Lock>> {
    lock::attempt(&folder.join("lock"), LockMode::Exclusive)
}

/// Removes incomplete files of an earlier process.
pub(super) fn clear(tmp: &Path) -> Result<()> {
    for entry in fs::read_dir(tmp).map_err(Error::io("read", tmp))? {
        let path = entry.map_err(Error::io("read", tmp))?.path();
        fs::remove_file(&path).map_err(Error::io("remove", &path))?;
    }
    Ok(())
}

/// Finds the blocks on the disk, ordered by their last use.
fn scan(folder: &Path) -> Result<BlockIndex> {
    let mut found: Vec<(SystemTime, BlockKey, u64)> = Vec::new();
    scan_blocks(folder, None, &mut found).map_err(Error::io("read", folder))?;
    for tenant in fs::read_dir(folder.join(TENANTS)).into_iter().flatten().flatten() {
        let name = tenant.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(name) = name {
            scan_blocks(&tenant.path(), Some(name), &mut found)
                .map_err(Error::io("read", folder))?;
        }
    }
    // By the time of the last use, which is each tuple's first field.
    found.sort_unstable();
    let mut index = BlockIndex::default();
    found.into_iter().for_each(|(_, key, bytes)| index.add(key, bytes));
    Ok(index)
}

fn scan_blocks(
    folder: &Path,
    tenant: Option<BlockDigest>,
    found: &mut Vec<(SystemTime, BlockKey, u64)>,
) -> io::Result<()> {
    for prefix in fs::read_dir(folder)?.flatten() {
        for block in fs::read_dir(prefix.path()).into_iter().flatten().flatten() {
            let digest = block.file_name().to_str().and_then(|name| name.parse().ok());
            if let (Some(digest), Ok(metadata)) = (digest, block.metadata())
                && metadata.is_file()
            {
                let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                found.push((used, (tenant, digest), metadata.len()));
            }
        }
    }
    Ok(())
}
