//! Lock files.
//!
//! A lock file may be removed by its exclusive holder. A process that opened the file before finds,
//! once it has the lock, that the path names another file or none, and begins again.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

pub(crate) use snowmelt_kernel::lock::LockMode;
use snowmelt_kernel::lock::{Lock, open};

use crate::{Error, Result};

/// A held lock; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct FileLock {
    lock: Lock,
    path: PathBuf,
}

impl FileLock {
    /// Takes the lock if it is free now.
    pub(crate) fn try_acquire(path: &Path, share: LockMode) -> Result<Option<Self>> {
        loop {
            let file = open(path).map_err(Error::io("open the lock", path))?;
            let Some(lock) = attempt(file, share, path)? else { return Ok(None) };
            if is_at(lock.file(), path)? {
                return Ok(Some(Self { lock, path: path.to_owned() }));
            }
        }
    }

    /// Waits for the lock; `on_wait` is called once if it is not free. Polls, so that giving up
    /// (dropping the future) leaves no thread behind that still waits.
    pub(crate) async fn acquire(
        path: &Path,
        share: LockMode,
        on_wait: impl FnOnce(),
    ) -> Result<Self> {
        const POLL: Duration = Duration::from_millis(20);
        if let Some(lock) = Self::try_acquire(path, share)? {
            return Ok(lock);
        }
        on_wait();
        loop {
            tokio::time::sleep(POLL).await;
            if let Some(lock) = Self::try_acquire(path, share)? {
                return Ok(lock);
            }
        }
    }

    /// Records that the guarded item was used now.
    pub(crate) fn touch(&self) -> Result<()> {
        self.lock.file().set_modified(SystemTime::now()).map_err(Error::io("touch", &self.path))
    }

    /// Gives an exclusive lock back together with its file.
    pub(crate) fn remove(self) -> Result<()> {
        fs::remove_file(&self.path).map_err(Error::io("remove", &self.path))
    }
}

/// Locks an open file or folder without waiting; `None` if it is not free.
pub(crate) fn attempt(file: File, share: LockMode, path: &Path) -> Result<Option<Lock>> {
    Lock::attempt(file, share).map_err(Error::io("lock", path))
}

fn is_at(file: &File, path: &Path) -> Result<bool> {
    let held = file.metadata().map_err(Error::io("read", path))?;
    Ok(fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (held.dev(), held.ino())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_lock_is_not_mistaken_for_the_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let stale = File::create(&path).unwrap();
        FileLock::try_acquire(&path, LockMode::Exclusive).unwrap().unwrap().remove().unwrap();
        let _new = FileLock::try_acquire(&path, LockMode::Exclusive).unwrap().unwrap();
        assert!(!is_at(&stale, &path).unwrap());
    }
}
