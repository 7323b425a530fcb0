//! Stored blocks on the disk, each a file named by its digest, bounded, the one used longest ago
//! evicted first.
//!
//! Invariant: a file under its final name was renamed there whole, and is compared with its digest
//! at each use all the same: `kill -9` leaves at most files in `tmp`, a power loss or a flipped bit
//! a block that is dropped and fetched again. Nothing is flushed, because nothing here is the only
//! copy.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use rustix::fs::FlockOperation;

use crate::block::{BlockDigest, BlockEntry, verify};
use crate::{Error, Result};

/// A cache, held by one process at a time.
pub struct BlockCache {
    folder: PathBuf,
    capacity: u64,
    index: Mutex<Index>,
    /// Locked as long as this lives; the lock dies with the process.
    _lock: File,
}

#[derive(Default)]
struct Index {
    blocks: HashMap<BlockDigest, (u64, u64)>,
    by_use: BTreeMap<u64, BlockDigest>,
    bytes: u64,
    clock: u64,
}

impl BlockCache {
    /// Opens or makes it; `capacity` is in bytes. Waits for nobody: a cache that another process
    /// holds is an error.
    pub fn open(folder: &Path, capacity: u64) -> Result<Self> {
        let tmp = folder.join("tmp");
        fs::create_dir_all(&tmp).map_err(Error::io("make the folder", &tmp))?;
        let path = folder.join("lock");
        let mut options = File::options();
        let lock = options.create(true).truncate(false).write(true).open(&path);
        let lock = lock.map_err(Error::io("open the lock", &path))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|errno| Error::io("lock", &path)(errno.into()))?;
        clear(&tmp)?;
        let index = Mutex::new(scan(folder)?);
        let cache = Self { folder: folder.to_owned(), capacity, index, _lock: lock };
        cache.evict(0);
        Ok(cache)
    }

    /// Bytes of all blocks.
    pub fn bytes(&self) -> u64 {
        self.index().bytes
    }

    /// A block if it is there and whole. One that is damaged is dropped.
    pub fn get(&self, entry: &BlockEntry) -> Option<Vec<u8>> {
        if !self.index().touch(&entry.digest) {
            return None;
        }
        let path = self.path(&entry.digest);
        let found = fs::read(&path);
        match found {
            Ok(stored) if verify(&stored, entry).is_ok() => {
                // Tells the next process the order of use; without it the order is only worse.
                let _ = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
                Some(stored)
            }
            _ => {
                tracing::warn!(block = %entry.digest, "dropping a damaged block of the cache");
                self.drop_block(&entry.digest);
                None
            }
        }
    }

    /// Keeps a block that was verified. On a full disk, half of the cache makes room once.
    pub fn put(&self, entry: &BlockEntry, stored: &[u8]) -> Result<()> {
        let bytes = stored.len() as u64;
        if bytes > self.capacity || self.index().touch(&entry.digest) {
            return Ok(());
        }
        self.evict(bytes);
        let written = match self.write(&entry.digest, stored) {
            Err(error) if error.is_disk_full() => {
                let half = self.bytes() / 2;
                self.evict_to(half);
                self.write(&entry.digest, stored)
            }
            outcome => outcome,
        };
        written.map(|()| self.index().add(entry.digest, bytes))
    }

    fn write(&self, digest: &BlockDigest, stored: &[u8]) -> Result<()> {
        let path = self.path(digest);
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
            let oldest = {
                let index = self.index();
                if index.bytes <= most {
                    return;
                }
                index.by_use.values().next().copied()
            };
            let Some(oldest) = oldest else { return };
            self.drop_block(&oldest);
        }
    }

    fn drop_block(&self, digest: &BlockDigest) {
        self.index().remove(digest);
        // One that is gone already is as good.
        let _ = fs::remove_file(self.path(digest));
    }

    fn path(&self, digest: &BlockDigest) -> PathBuf {
        let name = digest.to_string();
        self.folder.join(&name[..2]).join(name)
    }

    fn index(&self) -> std::sync::MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Index {
    fn add(&mut self, digest: BlockDigest, bytes: u64) {
        self.remove(&digest);
        self.clock += 1;
        self.blocks.insert(digest, (bytes, self.clock));
        self.by_use.insert(self.clock, digest);
        self.bytes += bytes;
    }

    fn remove(&mut self, digest: &BlockDigest) {
        if let Some((bytes, used)) = self.blocks.remove(digest) {
            self.by_use.remove(&used);
            self.bytes -= bytes;
        }
    }

    fn touch(&mut self, digest: &BlockDigest) -> bool {
        let Some(&(bytes, _)) = self.blocks.get(digest) else { return false };
        self.add(*digest, bytes);
        true
    }
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
    let mut found: Vec<(SystemTime, BlockDigest, u64)> = Vec::new();
    for shelf in fs::read_dir(folder).map_err(Error::io("read", folder))?.flatten() {
        let Ok(blocks) = fs::read_dir(shelf.path()) else { continue };
        for block in blocks.flatten() {
            let digest = block.file_name().to_str().and_then(|name| name.parse().ok());
            let (Some(digest), Ok(metadata)) = (digest, block.metadata()) else { continue };
            let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            found.push((used, digest, metadata.len()));
        }
    }
    found.sort_unstable();
    let mut index = Index::default();
    found.into_iter().for_each(|(_, digest, bytes)| index.add(digest, bytes));
    Ok(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(byte: u8, bytes: usize) -> (BlockEntry, Vec<u8>) {
        let stored = vec![byte; bytes];
        (BlockEntry { stored: bytes as u32, digest: BlockDigest::of(&stored) }, stored)
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
        let folder = tempfile::tempdir().unwrap();
        let cache = BlockCache::open(folder.path(), 1000).unwrap();
        let (entry, stored) = block(1, 100);
        cache.put(&entry, &stored).unwrap();
        let path = cache.path(&entry.digest);
        fs::write(&path, [2; 100]).unwrap();
        assert!(cache.get(&entry).is_none());
        assert!(!path.exists() && cache.bytes() == 0);
    }

    #[test]
    fn the_next_process_finds_the_blocks_and_clears_what_was_half_done() {
        let folder = tempfile::tempdir().unwrap();
        let (entry, stored) = block(1, 100);
        let cache = BlockCache::open(folder.path(), 1000).unwrap();
        cache.put(&entry, &stored).unwrap();
        assert!(BlockCache::open(folder.path(), 1000).is_err(), "one process at a time");
        fs::write(folder.path().join("tmp/left"), "half").unwrap();
        drop(cache);
        let cache = BlockCache::open(folder.path(), 1000).unwrap();
        assert_eq!(cache.get(&entry), Some(stored));
        assert!(!folder.path().join("tmp/left").exists());
        drop(cache);
        assert_eq!(BlockCache::open(folder.path(), 99).unwrap().bytes(), 0);
    }
}
