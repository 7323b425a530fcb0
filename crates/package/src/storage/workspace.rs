//! Temporary folders that are removed after their process has exited.
//!
//! Invariant: a workspace is locked before other processes can see it unlocked, and until it is
//! dropped. After a crash its lock is free, so the next start can remove it.

use std::fs::{self, File};
use std::path::Path;

use snowmelt_kernel::lock::Lock;

use super::file_lock::{LockMode, attempt};
use super::files::remove_tree;
use crate::{Error, Result};

/// A temporary folder, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Workspace {
    folder: tempfile::TempDir,
    _lock: Lock,
}

impl Workspace {
    /// Creates a workspace in `tmp`, which must exist.
    pub(crate) fn new(tmp: &Path) -> Result<Self> {
        // Blocks a sweep while a folder exists that is not locked yet.
        let _creating = lock_folder(tmp, LockMode::Shared)?;
        let folder = tempfile::Builder::new().prefix("work-").tempdir_in(tmp);
        let folder = folder.map_err(Error::io("make a folder in", tmp))?;
        let lock = lock_folder(folder.path(), LockMode::Exclusive)?;
        Ok(Self { folder, _lock: lock })
    }

    /// The number of workspaces whose process has exited.
    pub(crate) fn abandoned(tmp: &Path) -> usize {
        let entries = fs::read_dir(tmp).into_iter().flatten().flatten();
        entries.filter(|entry| is_abandoned(&entry.path())).count()
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Removes workspaces whose process has exited.
    pub(crate) fn sweep(tmp: &Path) -> Result<()> {
        let folder = File::open(tmp).map_err(Error::io("open", tmp))?;
        // Another process is creating a folder that is not locked yet: the next start sweeps.
        let Some(_alone) = attempt(folder, LockMode::Exclusive, tmp)? else { return Ok(()) };
        for entry in fs::read_dir(tmp).map_err(Error::io("read", tmp))?.flatten() {
            if is_abandoned(&entry.path()) {
                tracing::info!(folder = %entry.path().display(), "removing interrupted work");
                // An orphaned uv may still write into it. Its content is not used, so if it cannot
                // be removed now, the next start removes it.
                let _ = remove_tree(&entry.path());
            }
        }
        Ok(())
    }
}

/// Waits for a sweep, which alone holds a folder exclusively, as long as it removes folders.
fn lock_folder(path: &Path, share: LockMode) -> Result<Lock> {
    let folder = File::open(path).map_err(Error::io("open", path))?;
    Lock::wait(folder, share).map_err(Error::io("lock", path))
}

fn is_abandoned(path: &Path) -> bool {
    let Ok(folder) = File::open(path) else { return false };
    attempt(folder, LockMode::Exclusive, path).is_ok_and(|lock| lock.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_abandoned_workspaces_and_keeps_those_in_use() {
        let tmp = tempfile::tempdir().unwrap();
        let used = Workspace::new(tmp.path()).unwrap();
        let abandoned = tmp.path().join("work-abandoned");
        fs::create_dir_all(abandoned.join("site/half")).unwrap();
        assert_eq!(Workspace::abandoned(tmp.path()), 1);
        Workspace::sweep(tmp.path()).unwrap();
        assert!(used.path().exists() && !abandoned.exists());
        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
    }
}
