//! Stored blocks on the disk, each a file named by its digest, bounded, the one used longest ago
//! evicted first.
//!
//! Blocks of images that anybody may fetch are shared by all. A tenant's own are apart: who knows a
//! digest must not learn from the cache whether somebody else has the block, nor get it without the
//! registry's leave. The bound is one for all of them.
//!
//! One process holds it, and it alone makes room. Others may join: they read, bring blocks while
//! there is room, and tell the holder.
//!
//! Invariant: a file under its final name was renamed there whole, and is compared with its digest
//! at each use all the same: `kill -9` leaves at most files in `tmp`, a power loss or a flipped bit
//! a block that is dropped and fetched again. Nothing is flushed, because nothing here is the only
//! copy.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use super::journal::Journal;
use super::usage::Usage;
use crate::block::{BlockDigest, BlockEntry, verify};
use crate::lock::{Lock, Share};
use crate::{Error, Result};

/// Where the blocks of tenants are.
const TENANTS: &str = "tenants";

/// Whose block, and which.
pub(super) type Key = (Option<BlockDigest>, BlockDigest);
type Index = Usage<Key>;

/// A cache, held by one process at a time or joined, as one tenant or everybody sees it.
pub struct BlockCache {
    store: Arc<Store>,
    /// Whose blocks these are: a digest of the tenant's name, or nobody's.
    tenant: Option<BlockDigest>,
}

struct Store {
    folder: PathBuf,
    capacity: u64,
    index: Mutex<Index>,
    damaged: AtomicU64,
    joined: Mutex<Journal>,
    /// The holder's, locked as long as this lives; the lock dies with the process.
    lock: OnceLock<Lock>,
}

impl BlockCache {
    /// Opens or makes it; `capacity` is in bytes. Waits for nobody: a cache that another process
    /// holds is an error.
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

    /// The same, or if another process holds it, with that: what is brought here is found there.
    /// Once there is no room left, and nobody holds it any more, this one does.
    pub fn join(folder: &Path, capacity: u64) -> Result<Self> {
        match Self::open(folder, capacity) {
            Err(Error::Held { .. }) => {}
            opened => return opened,
        }
        let joined = Journal::join(folder).map_err(Error::io("write in", folder))?;
        let store = Store::new(folder, capacity, joined, OnceLock::new())?;
        Ok(Self { store: Arc::new(store), tenant: None })
    }

    /// The part of a tenant, which nobody else sees; what is open already is that of everybody.
    pub fn of_tenant(&self, tenant: &str) -> Self {
        let tenant = Some(BlockDigest::of(tenant.as_bytes()));
        Self { store: Arc::clone(&self.store), tenant }
    }

    /// Bytes of all blocks, of all tenants.
    pub fn bytes(&self) -> u64 {
        self.store.index().bytes()
    }

    /// Removes all blocks, of all tenants.
    pub fn empty(&self) {
        self.store.evict_to(0);
    }

    /// Blocks that were found damaged, of all tenants.
    pub fn damaged(&self) -> u64 {
        self.store.damaged.load(Ordering::Relaxed)
    }

    /// A block if it is there and whole. One that is damaged is dropped.
    pub fn get(&self, entry: &BlockEntry) -> Option<Vec<u8>> {
        let key = self.key(entry);
        if !self.store.touch(&key) {
            return None;
        }
        let path = self.store.path(&key);
        match fs::read(&path) {
            Ok(stored) if verify(&stored, entry).is_ok() => {
                // Tells the next process the order of use; without it the order is only worse.
                let _ = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
                Some(stored)
            }
            // Evicted in between, or dropped by another process.
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

    /// Whether a block is there; it may be gone at its use.
    pub fn has(&self, entry: &BlockEntry) -> bool {
        let key = self.key(entry);
        self.store.index().has(&key) || (self.store.hear() && self.store.index().has(&key))
    }

    /// Keeps a block that was verified. On a full disk, half of the cache makes room once. Who has
    /// joined brings nothing more once it is full.
    pub fn put(&self, entry: &BlockEntry, stored: &[u8]) -> Result<()> {
        let (bytes, key, store) = (stored.len() as u64, self.key(entry), &self.store);
        if bytes > store.capacity || store.touch(&key) {
            return Ok(());
        }
        if !store.is_holder() && (store.has_room(bytes) || !store.promote()) {
            return store.bring(key, stored);
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

    /// Uses a block, if it is there.
    fn touch(&self, key: &Key) -> bool {
        self.index().touch(key) || (self.hear() && self.index().touch(key))
    }

    /// Takes in what others brought; false if that is nothing.
    fn hear(&self) -> bool {
        if !self.is_holder() {
            return false;
        }
        let news = self.joined().news();
        let is_new = !news.is_empty();
        news.into_iter().for_each(|(key, bytes)| self.index().add(key, bytes));
        if is_new {
            self.evict(0);
        }
        is_new
    }

    fn is_holder(&self) -> bool {
        self.lock.get().is_some()
    }

    /// Becomes the holder if there is none any more.
    fn promote(&self) -> bool {
        let mut joined = self.joined();
        if self.is_holder() {
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

    /// Brings a block to a cache that another process holds.
    fn bring(&self, key: Key, stored: &[u8]) -> Result<()> {
        let bytes = stored.len() as u64;
        if !self.has_room(bytes) {
            let reason = "it is full, and only the platform that holds it makes room in it";
            return Err(Error::refused("the cache of blocks", reason));
        }
        let written = match self.write(&key, stored) {
            // Who holds it has just begun, and cleared away what it took for half-done.
            Err(error) if error.is_missing() => self.write(&key, stored),
            outcome => outcome,
        };
        written?;
        self.joined().tell(&key, bytes).map_err(Error::io("write in", &self.folder))?;
        self.index().add(key, bytes);
        Ok(())
    }

    /// Forgets a block whose file is gone.
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

    /// Makes room for so many bytes more.
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
        // One that is gone already is as good.
        let _ = fs::remove_file(self.path(key));
    }

    fn path(&self, (tenant, digest): &Key) -> PathBuf {
        let name = digest.to_string();
        let shelf = match tenant {
            None => self.folder.clone(),
            Some(tenant) => self.folder.join(TENANTS).join(tenant.to_string()),
        };
        shelf.join(&name[..2]).join(name)
    }

    fn joined(&self) -> std::sync::MutexGuard<'_, Journal> {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn index(&self) -> std::sync::MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to hold a cache; `None` if another process has it.
fn lock(folder: &Path) -> Result<Option<Lock>> {
    Lock::attempt(&folder.join("lock"), Share::Exclusive)
}

/// What an earlier process left half-done.
fn clear(tmp: &Path) -> Result<()> {
    for entry in fs::read_dir(tmp).map_err(Error::io("read", tmp))? {
        let path = entry.map_err(Error::io("read", tmp))?.path();
        fs::remove_file(&path).map_err(Error::io("remove", &path))?;
    }
    Ok(())
}

/// The blocks that are there, in the order of their last use.
fn scan(folder: &Path) -> Result<Index> {
    let mut found: Vec<(SystemTime, Key, u64)> = Vec::new();
    shelves(folder, None, &mut found).map_err(Error::io("read", folder))?;
    for tenant in fs::read_dir(folder.join(TENANTS)).into_iter().flatten().flatten() {
        let name = tenant.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(name) = name {
            shelves(&tenant.path(), Some(name), &mut found).map_err(Error::io("read", folder))?;
        }
    }
    found.sort_unstable();
    let mut index = Index::default();
    found.into_iter().for_each(|(_, key, bytes)| index.add(key, bytes));
    Ok(index)
}

fn shelves(
    folder: &Path,
    tenant: Option<BlockDigest>,
    found: &mut Vec<(SystemTime, Key, u64)>,
) -> io::Result<()> {
    for shelf in fs::read_dir(folder)?.flatten() {
        for block in fs::read_dir(shelf.path()).into_iter().flatten().flatten() {
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

    /// A folder, and a cache in it with the block `block(1, 100)`.
    fn with_one(capacity: u64) -> (tempfile::TempDir, BlockCache) {
        let folder = tempfile::tempdir().unwrap();
        let cache = BlockCache::open(folder.path(), capacity).unwrap();
        let (entry, stored) = block(1, 100);
        cache.put(&entry, &stored).unwrap();
        (folder, cache)
    }

    #[test]
    fn keeps_what_was_used_last_within_its_bounds() {
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
    fn a_tenants_blocks_are_apart_and_within_the_same_bounds() {
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
    fn the_next_process_finds_the_blocks_and_clears_what_was_half_done() {
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
    fn what_one_that_joined_brings_is_found_by_the_holder() {
        let (folder, holder) = with_one(300);
        let (first, stored) = block(1, 100);
        let guest = BlockCache::join(folder.path(), 300).unwrap();
        assert_eq!(guest.get(&first), Some(stored.clone()));
        let (second, brought) = block(2, 100);
        assert!(!holder.has(&second));
        guest.of_tenant("one").put(&second, &brought).unwrap();
        assert!(!holder.has(&second) && holder.of_tenant("one").has(&second));
        guest.put(&second, &brought).unwrap();
        assert!(holder.has(&second));
        assert_eq!((holder.get(&second), holder.bytes()), (Some(brought), 300));
        // It is full: who joined takes nobody's room, the holder makes some.
        let (third, late) = block(3, 100);
        let refused = guest.put(&third, &late).unwrap_err();
        assert!(refused.to_string().contains("full"), "{refused}");
        holder.put(&third, &late).unwrap();
        assert!(holder.get(&first).is_none() && holder.bytes() == 300);
        // A block that the holder dropped is no block here, and can be brought again.
        assert!(guest.get(&first).is_none());
        drop(holder);
        let (last, more) = block(4, 100);
        guest.put(&first, &stored).unwrap();
        guest.put(&last, &more).unwrap();
        assert_eq!((guest.get(&last), guest.bytes()), (Some(more), 300));
        assert!(matches!(BlockCache::open(folder.path(), 300), Err(Error::Held { .. })));
    }

    #[test]
    fn a_block_that_another_process_dropped_can_be_put_again() {
        let (_folder, holder) = with_one(300);
        let (entry, stored) = block(1, 100);
        fs::remove_file(holder.store.path(&holder.key(&entry))).unwrap();
        assert!(holder.get(&entry).is_none() && holder.bytes() == 0);
        holder.put(&entry, &stored).unwrap();
        assert_eq!(holder.get(&entry), Some(stored));
    }
}
