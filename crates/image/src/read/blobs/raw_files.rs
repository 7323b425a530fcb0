//! Complete images as files of raw bytes, which the kernel mounts without a server.
//!
//! A file is named by the Merkle root of its blob. Every byte was verified when it was written; the
//! file was then made read-only and given a modification time that no later write would leave. A
//! file whose time, size, owner or mode differs when it is to be mounted is removed.
//!
//! Invariant: only the process with the lock writes or removes files here, and a file is renamed to
//! its name when it is complete. `kill -9` leaves at most temporary files, which the next process
//! with the lock removes.

use std::fs::{self, File, FileTimes, Metadata, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::BlobReader;
use crate::block::BlobSummary;
use crate::lock::{self, Lock, LockMode};
use crate::removal::Collected;
use crate::{Error, Image, Result};

/// The modification time of a complete file.
const SEALED: SystemTime = UNIX_EPOCH;
const MODE: u32 = 0o400;
const ENDING: &str = "raw";

/// The folder of complete images as raw files.
pub struct RawFiles {
    folder: PathBuf,
    most_bytes: u64,
}

/// The files of one image. They are not evicted while this value lives.
pub struct LockedFiles {
    /// The paths of the metadata part and then of the layers.
    pub paths: Vec<PathBuf>,
    _locks: Vec<Lock>,
}

impl RawFiles {
    /// Names the folder of the files, and creates nothing on the disk. `most_bytes` limits the
    /// disk space of all files.
    pub fn new(folder: &Path, most_bytes: u64) -> Self {
        Self { folder: folder.to_owned(), most_bytes }
    }

    /// Returns the files of an image, if all exist.
    pub fn of(&self, image: &Image) -> Option<LockedFiles> {
        let mut paths = Vec::new();
        let mut locks = Vec::new();
        for blob in image.blobs() {
            let path = self.path(blob);
            let file = File::open(&path).ok()?;
            let found = file.metadata().ok()?;
            if !is_sealed(&found, blob) {
                tracing::warn!(file = %path.display(), "dropping raw bytes that were changed");
                let _ = fs::remove_file(&path);
                return None;
            }
            // The access time only determines the order of eviction.
            let _ = file.set_times(FileTimes::new().set_accessed(SystemTime::now()));
            locks.push(Lock::wait(file, LockMode::Shared).ok()?);
            paths.push(path);
        }
        Some(LockedFiles { paths, _locks: locks })
    }

    /// Writes the raw bytes of all blobs that do not exist yet, and fetches their missing blocks.
    /// `None` if the limit leaves no room, or if another process is writing here.
    pub async fn make(
        &self,
        image: &Image,
        readers: &[Arc<BlobReader>],
    ) -> Result<Option<LockedFiles>> {
        fs::create_dir_all(&self.folder).map_err(Error::io("make the folder", &self.folder))?;
        let Some(_lock) = self.lock()? else { return Ok(None) };
        let missing = readers.iter().filter(|reader| !self.path(reader.summary()).is_file());
        let missing: Vec<_> = missing.collect();
        let needed = missing.iter().map(|reader| reader.raw_size()).sum();
        // Locked during eviction, so that existing files of this image are kept.
        let present = image.blobs().map(|blob| self.path(blob));
        let _present: Vec<Lock> =
            present.filter_map(|path| attempt_at(&path, LockMode::Shared)).collect();
        if !self.make_room(needed)? {
            return Ok(None);
        }
        for reader in missing {
            reader.complete(&self.folder).await?;
        }
        Ok(self.of(image))
    }

    /// Removes all files that are not mounted; with `dry`, only counts them.
    pub fn prune(&self, dry: bool) -> Result<Collected> {
        let mut collected = Collected::default();
        if !self.folder.is_dir() {
            return Ok(collected);
        }
        let busy = || Error::refused("collecting", "raw bytes of an image are being written now");
        let _lock = self.lock()?.ok_or_else(busy)?;
        for (path, found) in self.files()? {
            if is_free(&path) {
                collected.blobs += 1;
                collected.bytes += found.blocks() * 512;
                if !dry {
                    remove(&path)?;
                }
            }
        }
        Ok(collected)
    }

    fn path(&self, blob: &BlobSummary) -> PathBuf {
        path_in(&self.folder, blob)
    }

    /// Acquires the write lock and removes temporary files; `None` if another process has the lock.
    fn lock(&self) -> Result<Option<Lock>> {
        let Some(lock) = lock::attempt(&self.folder.join("lock"), LockMode::Exclusive)? else {
            return Ok(None);
        };
        let entries = fs::read_dir(&self.folder).map_err(Error::io("read", &self.folder))?;
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        for path in paths.filter(|path| !path.ends_with("lock") && !has_ending(path)) {
            remove(&path)?;
        }
        Ok(Some(lock))
    }

    /// Evicts unmounted files in LRU order until `needed` more bytes fit.
    fn make_room(&self, needed: u64) -> Result<bool> {
        let mut files = self.files()?;
        files.sort_by_key(|(_, found)| found.accessed().unwrap_or(UNIX_EPOCH));
        let mut held: u64 = files.iter().map(|(_, found)| found.blocks() * 512).sum();
        for (path, found) in files {
            if held.saturating_add(needed) <= self.most_bytes {
                break;
            }
            if is_free(&path) {
                remove(&path)?;
                held -= found.blocks() * 512;
            }
        }
        Ok(held.saturating_add(needed) <= self.most_bytes)
    }

    fn files(&self) -> Result<Vec<(PathBuf, Metadata)>> {
        let entries = fs::read_dir(&self.folder).map_err(Error::io("read", &self.folder))?;
        let files = entries.filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.path(), entry.metadata().ok()?))
        });
        Ok(files.filter(|(path, _)| has_ending(path)).collect())
    }
}

/// Returns the path of the file with a blob's raw bytes.
pub(super) fn path_in(folder: &Path, blob: &BlobSummary) -> PathBuf {
    folder.join(format!("{}.{ENDING}", blob.root))
}

/// Makes a complete file read-only, in a way that reveals later writes.
pub(super) fn seal(file: &File) -> std::io::Result<()> {
    file.set_permissions(Permissions::from_mode(MODE))?;
    file.set_times(FileTimes::new().set_modified(SEALED).set_accessed(SystemTime::now()))
}

fn is_sealed(found: &Metadata, blob: &BlobSummary) -> bool {
    found.is_file()
        && found.len() == blob.raw_size
        && found.mode() & 0o7777 == MODE
        && found.uid() == rustix::process::geteuid().as_raw()
        && found.modified().is_ok_and(|time| time == SEALED)
}

/// Returns whether no process has the file locked.
fn is_free(path: &Path) -> bool {
    attempt_at(path, LockMode::Exclusive).is_some()
}

fn attempt_at(path: &Path, share: LockMode) -> Option<Lock> {
    Lock::attempt(File::open(path).ok()?, share).ok()?
}

fn has_ending(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == ENDING)
}

fn remove(path: &Path) -> Result<()> {
    fs::remove_file(path).map_err(Error::io("remove", path))
}
