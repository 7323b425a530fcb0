//! Lock files.

use std::fs::File;
use std::path::Path;

pub use snowmelt_kernel::lock::Lock;
pub(crate) use snowmelt_kernel::lock::LockMode;

use crate::{Error, Result};

/// Locks a file, which is created if it is missing. Waits until it is free.
pub(crate) fn wait(path: &Path, share: LockMode) -> Result<Lock> {
    Lock::wait(open(path)?, share).map_err(Error::io("lock", path))
}

/// Takes a lock without waiting; `None` if another holder excludes it.
pub(crate) fn attempt(path: &Path, share: LockMode) -> Result<Option<Lock>> {
    Lock::attempt(open(path)?, share).map_err(Error::io("lock", path))
}

fn open(path: &Path) -> Result<File> {
    snowmelt_kernel::lock::open(path).map_err(Error::io("open the lock", path))
}
