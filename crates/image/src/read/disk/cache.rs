//! The disk cache of stored blocks: each block is a file named by its digest. The total size is
//! bounded; `store` evicts the blocks that were not used for the longest time.
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
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use super::journal::{BlockKey, Journal};
use super::store::{BlockFolder, clear, lock};
use crate::block::{BlockDigest, BlockEntry, verify};
use crate::{Error, Result};

/// A disk cache, owned or joined by this process, in the view of one tenant or of the public.
pub struct BlockCache {
    store: Arc<BlockFolder>,
    /// The digest of the tenant's name; `None` for public blocks.
    tenant: Option<BlockDigest>,
}

impl BlockCache {
    /// Opens or creates the cache; `capacity` is in bytes. Does not wait: fails if another process
    /// owns it.
    pub fn open(folder: &Path, capacity: u64) -> Result<Self> {
        let tmp = folder.join("tmp");
        fs::create_dir_all(&tmp).map_err(Error::io("make the folder", &tmp))?;
        let lock = lock(folder)?.ok_or_else(|| Error::Held { path: folder.to_owned() })?;
        clear(&tmp)?;
        // Before the scan: what a process adds during the scan is in the journal, and found twice
        // at worst.
        let joined = Journal::begin(folder).map_err(Error::io("write in", folder))?;
        let store = BlockFolder::new(folder, capacity, joined, OnceLock::from(lock))?;
        // The limit may be lower than that of the last owner.
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
        let store = BlockFolder::new(folder, capacity, joined, OnceLock::new())?;
        Ok(Self { store: Arc::new(store), tenant: None })
    }

    /// Returns the view of a tenant, which no other tenant shares; without one, the public view, as
    /// the cache that was opened is.
    pub fn of_tenant<'a>(&self, tenant: impl Into<Option<&'a str>>) -> Self {
        let tenant = tenant.into().map(|name| BlockDigest::of(name.as_bytes()));
        Self { store: Arc::clone(&self.store), tenant }
    }

    /// Returns the total size in bytes of all blocks, of all tenants.
    pub fn bytes(&self) -> u64 {
        self.store.index().bytes()
    }

    /// Removes all blocks, of all tenants.
    pub fn empty(&self) {
        self.store.evict_to(0);
    }

    /// Returns the number of blocks that were found damaged, of all tenants.
    pub fn damaged(&self) -> u64 {
        self.store.damaged.load(Ordering::Relaxed)
    }

    /// Reads a block, if it is in the cache and undamaged. A damaged block is dropped.
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

    /// Returns whether a block is in the cache; it may be evicted before it is read.
    pub fn has(&self, entry: &BlockEntry) -> bool {
        let key = self.key(entry);
        self.store.index().has(&key) || (self.store.read_journal() && self.store.index().has(&key))
    }

    /// Returns how many bytes of these blocks are in the cache, as they are stored.
    pub fn bytes_of(&self, entries: &[BlockEntry]) -> u64 {
        // Blocks of processes that joined.
        self.store.read_journal();
        let index = self.store.index();
        let here = entries.iter().filter(|entry| index.has(&self.key(entry)));
        here.map(|entry| u64::from(entry.stored)).sum()
    }

    /// Stores a verified block. If the disk is full, evicts half of the cache and tries once more.
    /// A process that joined cannot store blocks in a full cache.
    pub fn put(&self, entry: &BlockEntry, stored: &[u8]) -> Result<()> {
        let bytes = stored.len() as u64;
        let key = self.key(entry);
        let store = &self.store;
        // A block that is there already counts as used now.
        if bytes > store.capacity || store.touch(&key) {
            return Ok(());
        }
        // Only a full cache makes this process ask for the lock, which would cost a system call for
        // each block.
        if !store.is_owner() && (store.has_room(bytes) || !store.promote()) {
            return store.add_joined(key, stored);
        }
        // Before the write, so that the cache stays within its limit.
        store.evict(bytes);
        let written = match store.write(&key, stored) {
            Err(error) if error.is_disk_full() => {
                // Much at once: with a few blocks less the disk would be full again at the next
                // one.
                store.evict_to(self.bytes() / 2);
                store.write(&key, stored)
            }
            outcome => outcome,
        };
        written.map(|()| store.index().add(key, bytes))
    }

    fn key(&self, entry: &BlockEntry) -> BlockKey {
        (self.tenant, entry.digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(byte: u8, bytes: usize) -> (BlockEntry, Vec<u8>) {
        let stored = vec![byte; bytes];
        (BlockEntry { stored: bytes as u32, digest: BlockDigest::of(&stored) }, stored)
    }

    /// Makes a folder with a cache that contains the block `block(1, 100)`.
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
        let two = public.of_tenant("two/../one");
        let one = public.of_tenant("one");
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
