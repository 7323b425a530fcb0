//! Lock files.

use std::fs::File;
use std::path::Path;

pub(crate) use snowmelt_kernel::lock::Share;

use crate::{Error, Result};

/// A locked file; dropping it releases the lock.
#[derive(Debug)]
pub struct Lock {
    _held: snowmelt_kernel::lock::Lock,
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
        let locked = snowmelt_kernel::lock::Lock::wait(file, share);
        locked.map(Self::of).map_err(Error::io("lock", path))
    }

    /// The same without waiting; `None` if it is not free.
    pub(crate) fn attempt_at(file: File, share: Share, path: &Path) -> Result<Option<Self>> {
        let locked = snowmelt_kernel::lock::Lock::attempt(file, share);
        Ok(locked.map_err(Error::io("lock", path))?.map(Self::of))
    }

    fn of(held: snowmelt_kernel::lock::Lock) -> Self {
        Self { _held: held }
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
        let alone = Lock::wait(&path, Share::Exclusive).unwrap();
        assert!(attempt(Share::Shared).is_none() && attempt(Share::Exclusive).is_none());
        drop(alone);
        let together = [attempt(Share::Shared), Some(Lock::wait(&path, Share::Shared).unwrap())];
        assert!(together.iter().all(Option::is_some) && attempt(Share::Exclusive).is_none());
    }
}
