//! Locks between processes, which die with their holder (`flock`).

use std::fs::{File, TryLockError};
use std::path::Path;

use crate::{Error, Result};

/// A locked file; dropping it gives the lock back.
///
/// Invariant: it is given back by name and not by closing the file. A child that another thread has
/// forked has the file open too until its exec, and would keep the lock that long.
#[derive(Debug)]
pub struct Lock(File);

/// How many may hold a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// Any number, while nobody holds it alone.
    Shared,
    /// One.
    Alone,
}

impl Lock {
    /// A lock file, made if it is not there. Waits for whoever has it.
    pub(crate) fn wait(path: &Path, share: Share) -> Result<Self> {
        Self::wait_for(open(path)?, share, path)
    }

    /// The same without waiting; `None` if it is not free.
    pub(crate) fn attempt(path: &Path, share: Share) -> Result<Option<Self>> {
        Self::attempt_at(open(path)?, share, path)
    }

    /// Locks an open file, which is at `path`.
    pub(crate) fn wait_for(file: File, share: Share, path: &Path) -> Result<Self> {
        let locked = match share {
            Share::Shared => file.lock_shared(),
            Share::Alone => file.lock(),
        };
        locked.map(|()| Self(file)).map_err(Error::io("lock", path))
    }

    /// The same without waiting; `None` if it is not free.
    pub(crate) fn attempt_at(file: File, share: Share, path: &Path) -> Result<Option<Self>> {
        let locked = match share {
            Share::Shared => file.try_lock_shared(),
            Share::Alone => file.try_lock(),
        };
        match locked {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(Error::io("lock", path)(error)),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // What cannot be given back goes with the file.
        let _ = self.0.unlock();
    }
}

fn open(path: &Path) -> Result<File> {
    let opened = File::options().create(true).truncate(false).write(true).open(path);
    opened.map_err(Error::io("open the lock", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_alone_or_many_together() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let attempt = |share| Lock::attempt(&path, share).unwrap();
        let alone = Lock::wait(&path, Share::Alone).unwrap();
        assert!(attempt(Share::Shared).is_none() && attempt(Share::Alone).is_none());
        drop(alone);
        let together = [attempt(Share::Shared), Some(Lock::wait(&path, Share::Shared).unwrap())];
        assert!(together.iter().all(Option::is_some) && attempt(Share::Alone).is_none());
    }

    #[test]
    fn it_is_free_at_once_whoever_has_the_file_open_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let lock = Lock::wait(&path, Share::Alone).unwrap();
        let as_a_child_has_it = lock.0.try_clone().unwrap();
        drop(lock);
        assert!(Lock::attempt(&path, Share::Alone).unwrap().is_some());
        drop(as_a_child_has_it);
    }
}
