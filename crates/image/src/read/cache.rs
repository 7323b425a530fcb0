//! The disk cache of stored blocks: each block is a file named by its digest. The total size is
//! bounded; blocks are evicted in LRU order.
//!
//! Blocks of public images are shared by all tenants. A tenant's own blocks are separate: a client
//! that knows a digest must not learn from the cache whether another tenant has the block, nor read
//! it without the registry's permission. One size limit applies to all of them.
//!
//! One process owns the cache, and only the owner evicts blocks. Others may join it (decision 029):
//! they read blocks, add blocks while there is space, and report these to the owner.
//!
//! Invariant: a file gets its final name when it is complete, and its digest is verified at each
//! use. `kill -9` leaves at most files in `tmp`; a power failure or a flipped bit leaves a block
//! that is dropped and fetched again. Nothing is flushed, because every block has another copy.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use super::journal::{Journal, Key};
use super::usage::Usage;
use crate::block::{BlockDigest, BlockEntry, verify};
use crate::lock::{self, Lock, Share};
use crate::{Error, Result};

/// The folder of the tenants' blocks.
const TENANTS: &str = "tenants";

type Index = Usage<Key>;

/// A disk cache, owned or joined by this process, in the view of one tenant or of the public.
pub struct BlockCache {
    store: Arc<Store>,
    /// The digest of the tenant's name; `None` for public blocks.
    tenant: Option<BlockDigest>,
}

struct Store {
    folder: PathBuf,
    capacity: u64,
    index: Mutex<Index>,
    damaged: AtomicU64,
    joined: Mutex<Journal>,
    /// The owner's lock, held as long as this value lives; the kernel releases it with the process.
    lock: OnceLock<Lock>,
}

impl BlockCache {
    /// Opens or creates the cache; `capacity` is in bytes. Does not wait: fails if another process
    /// owns it.
    pub fn open(folder: &Path, capacity: u64) -> Result<Self> {
        let tmp = folder.join("tmp");
        fs::create_dir_all(&tmp).map_err(Error::io("make the folder", &tmp))?;
        let lock = lock(folder)?.ok_or_else(|| Error::Held { path: folder.to_owned() })?;
        clear(&tmp)?;
        let joined = Journal::begin(folder).map_err(Error::io("write in", folder))?;
        let store = Store::new(folder, capacity, joined, OnceLock::from(lock))?;
        store.evict(0);
        Ok(Self { store: Arc::new(store), tenant: None })
    }

    /// Opens the cache, or joins it if another process owns it; the owner finds the blocks that
    /// this process adds. When the cache is full and its owner has exited, this process becomes the
    /// owner.
    pub fn join(folder: &Path, capacity: u64) -> Result<Self> {
        match Self::open(folder, capacity) {
            Err(Error::Held { .. }) => {}
            opened => return opened,
        }
        let joined = Journal::join(folder).map_err(Error::io("write in", folder))?;
        let store = Store::new(folder, capacity, joined, OnceLock::new())?;
        Ok(Self { store: Arc::new(store), tenant: None })
    }

    /// The view of a tenant, which no other tenant shares; the cache that was opened is the public
    /// view.
    pub fn of_tenant(&self, tenant: &str) -> Self {
        let tenant = Some(BlockDigest::of(tenant.as_bytes()));
        Self { store: Arc::clone(&self.store), tenant }
    }

    /// The total size of all blocks, of all tenants.
    pub fn bytes(&self) -> u64 {
        self.store.index().bytes()
    }

    /// Removes all blocks, of all tenants.
    pub fn empty(&self) {
        self.store.evict_to(0);
    }

    /// The number of blocks that were found damaged, of all tenants.
    pub fn damaged(&self) -> u64 {
        self.store.damaged.load(Ordering::Relaxed)
    }

    /// A block, if it is in the cache and undamaged. A damaged one is dropped.
    pub fn get(&self, entry: &BlockEntry) -> Option<Vec<u8>> {
        let key = self.key(entry);
        if !self.store.touch(&key) {
            return None;
        }
        let path = self.store.path(&key);
        match fs::read(&path) {
            Ok(stored) if verify(&stored, entry).is_ok() => {
                // The next process restores the LRU order from it; a failure only worsens that
                // order.
                let _ = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
                Some(stored)
            }
            // Evicted in the meantime, or dropped by another process.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.store.forget(&key);
                None
            }
            _ => {
                tracing::warn!(block = %entry.digest, "dropping a damaged block of the cache");
                self.store.damaged.fetch_add(1, Ordering::Relaxed);
                self.store.drop_block(&key);
                None
            }
        }
    }

    /// Whether a block is in the cache; it may be evicted before it is read.
    pub fn has(&self, entry: &BlockEntry) -> bool {
        let key = self.key(entry);
        self.store.index().has(&key) || (self.store.read_journal() && self.store.index().has(&key))
    }

    /// Stores a verified block. If the disk is full, evicts half of the cache and tries once more.
    /// A process that joined cannot store blocks in a full cache.
    pub fn put(&self, entry: &BlockEntry, stored: &[u8]) -> Result<()> {
        let (bytes, key, store) = (stored.len() as u64, self.key(entry), &self.store);
        if bytes > store.capacity || store.touch(&key) {
            return Ok(());
        }
        if !store.is_owner() && (store.has_room(bytes) || !store.promote()) {
            return store.add_joined(key, stored);
        }
        store.evict(bytes);
        let written = match store.write(&key, stored) {
            Err(error) if error.is_disk_full() => {
                store.evict_to(self.bytes() / 2);
                store.write(&key, stored)
            }
            outcome => outcome,
        };
        written.map(|()| store.index().add(key, bytes))
    }

    fn key(&self, entry: &BlockEntry) -> Key {
        (self.tenant, entry.digest)
    }
}

impl Store {
    fn new(folder: &Path, capacity: u64, joined: Journal, lock: OnceLock<Lock>) -> Result<Self> {
        let (index, damaged) = (Mutex::new(scan(folder)?), AtomicU64::new(0));
        let (folder, joined) = (folder.to_owned(), Mutex::new(joined));
        Ok(Self { folder, capacity, index, damaged, joined, lock })
    }

    /// Marks a block as used, if it is in the cache.
    fn touch(&self, key: &Key) -> bool {
        self.index().touch(key) || (self.read_journal() && self.index().touch(key))
    }

    /// Adds the blocks that other processes stored to the index; false if there are none.
    fn read_journal(&self) -> bool {
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

    fn is_owner(&self) -> bool {
        self.lock.get().is_some()
    }

    /// Becomes the owner if there is none.
    fn promote(&self) -> bool {
        let mut joined = self.joined();
        if self.is_owner() {
            return true;
        }
        let Ok(Some(lock)) = lock(&self.folder) else { return false };
        let Ok(journal) = Journal::begin(&self.folder) else { return false };
        let Ok(found) = scan(&self.folder) else { return false };
        (*joined, *self.index()) = (journal, found);
        self.lock.set(lock).is_ok()
    }

    fn has_room(&self, more: u64) -> bool {
        self.index().bytes().saturating_add(more) <= self.capacity
    }

    /// Stores a block in a cache that another process owns.
    fn add_joined(&self, key: Key, stored: &[u8]) -> Result<()> {
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
        self.joined().append(&key, bytes).map_err(Error::io("write in", &self.folder))?;
        self.index().add(key, bytes);
        Ok(())
    }

    /// Removes a block from the index if its file does not exist.
    fn forget(&self, key: &Key) {
        let mut index = self.index();
        if !self.path(key).exists() {
            index.remove(key);
        }
    }

    fn write(&self, key: &Key, stored: &[u8]) -> Result<()> {
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
    fn evict(&self, more: u64) {
        self.evict_to(self.capacity.saturating_sub(more));
    }

    fn evict_to(&self, most: u64) {
        loop {
            let oldest = self.index().oldest_above(most);
            let Some(oldest) = oldest else { return };
            self.drop_block(&oldest);
        }
    }

    fn drop_block(&self, key: &Key) {
        self.index().remove(key);
        // The file may have been removed already.
        let _ = fs::remove_file(self.path(key));
    }

    fn path(&self, (tenant, digest): &Key) -> PathBuf {
        let name = digest.to_string();
        let parent = match tenant {
            None => self.folder.clone(),
            Some(tenant) => self.folder.join(TENANTS).join(tenant.to_string()),
        };
        parent.join(&name[..2]).join(name)
    }

    fn joined(&self) -> std::sync::MutexGuard<'_, Journal> {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn index(&self) -> std::sync::MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The owner's lock; `None` if another process has it.
fn lock(folder: &Path) -> Result<Option<Lock>> {
    lock::attempt(&folder.join("lock"), Share::Exclusive)
}

/// Removes incomplete files of an earlier process.
fn clear(tmp: &Path) -> Result<()> {
    for entry in fs::read_dir(tmp).map_err(Error::io("read", tmp))? {
        let path = entry.map_err(Error::io("read", tmp))?.path();
        fs::remove_file(&path).map_err(Error::io("remove", &path))?;
    }
    Ok(())
}

/// The blocks on the disk, ordered by their last use.
fn scan(folder: &Path) -> Result<Index> {
    let mut found: Vec<(SystemTime, Key, u64)> = Vec::new();
    scan_blocks(folder, None, &mut found).map_err(Error::io("read", folder))?;
    for tenant in fs::read_dir(folder.join(TENANTS)).into_iter().flatten().flatten() {
        let name = tenant.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(name) = name {
            scan_blocks(&tenant.path(), Some(name), &mut found)
                .map_err(Error::io("read", folder))?;
        }
    }
    found.sort_unstable();
    let mut index = Index::default();
    found.into_iter().for_each(|(_, key, bytes)| index.add(key, bytes));
    Ok(index)
}

fn scan_blocks(
    folder: &Path,
    tenant: Option<BlockDigest>,
    found: &mut Vec<(SystemTime, Key, u64)>,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn block(byte: u8, bytes: usize) -> (BlockEntry, Vec<u8>) {
        let stored = vec![byte; bytes];
        (BlockEntry { stored: bytes as u32, digest: BlockDigest::of(&stored) }, stored)
    }

    /// A folder with a cache that contains the block `block(1, 100)`.
    fn with_one(capacity: u64) -> (tempfile::TempDir, BlockCache) {
        let folder = tempfile::tempdir().unwrap();
        let cache = BlockCache::open(folder.path(), capacity).unwrap();
        let (entry, stored) = block(1, 100);
        cache.put(&entry, &stored).unwrap();
        (folder, cache)
    }

    #[test]
    fn evicts_the_least_recently_used_block() {
        let folder = tempfile::tempdir().unwrap();
        let cache = BlockCache::open(folder.path(), 300).unwrap();
        let blocks: Vec<_> = (1..=3).map(|byte| block(byte, 100)).collect();
        blocks.iter().for_each(|(entry, stored)| cache.put(entry, stored).unwrap());
        assert!(cache.get(&blocks[0].0).is_some());
        let (entry, stored) = block(4, 100);
        cache.put(&entry, &stored).unwrap();
        assert_eq!(cache.bytes(), 300);
        assert!(cache.get(&blocks[1].0).is_none(), "used longest ago");
        assert!(cache.get(&blocks[0].0).is_some() && cache.get(&entry).is_some());
        let (huge, stored) = block(5, 301);
        cache.put(&huge, &stored).unwrap();
        assert_eq!(cache.bytes(), 300);
    }

    #[test]
    fn a_damaged_block_is_dropped() {
        let (_folder, cache) = with_one(1000);
        let (entry, _) = block(1, 100);
        let path = cache.store.path(&cache.key(&entry));
        fs::write(&path, [2; 100]).unwrap();
        assert!(cache.get(&entry).is_none());
        assert!(!path.exists() && cache.bytes() == 0 && cache.damaged() == 1);
    }

    #[test]
    fn tenants_do_not_share_blocks_but_share_the_size_limit() {
        let folder = tempfile::tempdir().unwrap();
        let public = BlockCache::open(folder.path(), 250).unwrap();
        let (one, two) = (public.of_tenant("one"), public.of_tenant("two/../one"));
        let (entry, stored) = block(1, 100);
        one.put(&entry, &stored).unwrap();
        assert!(public.get(&entry).is_none() && two.get(&entry).is_none());
        public.put(&entry, &stored).unwrap();
        assert_eq!((one.get(&entry), one.bytes()), (Some(stored.clone()), 200));
        assert!(two.get(&entry).is_none());
        two.put(&entry, &stored).unwrap();
        assert_eq!(two.bytes(), 200, "one bound for all");
        assert!(public.get(&entry).is_none(), "used longest ago");
        drop((public, one, two));
        let again = BlockCache::open(folder.path(), 1000).unwrap();
        assert_eq!(again.bytes(), 200);
        assert_eq!(again.of_tenant("one").get(&entry), Some(stored));
        assert!(again.get(&entry).is_none());
    }

    #[test]
    fn the_next_owner_finds_the_blocks_and_removes_incomplete_files() {
        let (folder, cache) = with_one(1000);
        let (entry, stored) = block(1, 100);
        let second = BlockCache::open(folder.path(), 1000).err();
        assert!(matches!(second, Some(Error::Held { .. })), "one process at a time");
        fs::write(folder.path().join("tmp/left"), "half").unwrap();
        drop(cache);
        let cache = BlockCache::open(folder.path(), 1000).unwrap();
        assert_eq!(cache.get(&entry), Some(stored));
        assert!(!folder.path().join("tmp/left").exists());
        drop(cache);
        BlockCache::open(folder.path(), 1000).unwrap().empty();
        assert!(BlockCache::open(folder.path(), 1000).unwrap().get(&entry).is_none());
        BlockCache::open(folder.path(), 1000).unwrap().put(&entry, &block(1, 100).1).unwrap();
        assert_eq!(BlockCache::open(folder.path(), 99).unwrap().bytes(), 0);
    }

    #[test]
    fn the_owner_finds_blocks_of_a_process_that_joined() {
        let (folder, owner) = with_one(300);
        let (first, stored) = block(1, 100);
        let joined = BlockCache::join(folder.path(), 300).unwrap();
        assert_eq!(joined.get(&first), Some(stored.clone()));
        let (second, added) = block(2, 100);
        assert!(!owner.has(&second));
        joined.of_tenant("one").put(&second, &added).unwrap();
        assert!(!owner.has(&second) && owner.of_tenant("one").has(&second));
        joined.put(&second, &added).unwrap();
        assert!(owner.has(&second));
        assert_eq!((owner.get(&second), owner.bytes()), (Some(added), 300));
        // The cache is full: the process that joined cannot evict blocks, the owner can.
        let (third, late) = block(3, 100);
        let refused = joined.put(&third, &late).unwrap_err();
        assert!(refused.to_string().contains("full"), "{refused}");
        owner.put(&third, &late).unwrap();
        assert!(owner.get(&first).is_none() && owner.bytes() == 300);
        // A block that the owner evicted is gone for the other process too, and can be added again.
        assert!(joined.get(&first).is_none());
        drop(owner);
        let (last, more) = block(4, 100);
        joined.put(&first, &stored).unwrap();
        joined.put(&last, &more).unwrap();
        assert_eq!((joined.get(&last), joined.bytes()), (Some(more), 300));
        assert!(matches!(BlockCache::open(folder.path(), 300), Err(Error::Held { .. })));
    }

    #[test]
    fn a_block_that_another_process_removed_can_be_stored_again() {
        let (_folder, owner) = with_one(300);
        let (entry, stored) = block(1, 100);
        fs::remove_file(owner.store.path(&owner.key(&entry))).unwrap();
        assert!(owner.get(&entry).is_none() && owner.bytes() == 0);
        owner.put(&entry, &stored).unwrap();
        assert_eq!(owner.get(&entry), Some(stored));
    }
}
