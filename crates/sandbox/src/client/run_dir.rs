//! The run directory of one process, and the removal of run directories whose process has ended.
//!
//! Invariant: the holder of the lock (flock on the folder itself) owns the resources that the
//! folder names. The server and its spawner share one lock, so it is free only when both have
//! ended. Creating, locking and sweeping happen under a lock of the base folder, so a sweep never
//! sees a folder that is not locked yet.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snowmelt_kernel::lock::{Lock, LockMode};

use super::pidfd;
use super::privileges::delegated;
use crate::Result;
use crate::message::MAX_LANES;
use crate::run_dir::{CGROUP_FILE, at, clean_lane, remove};

/// A run directory that this process holds.
#[derive(Debug)]
pub(super) struct RunDir {
    path: PathBuf,
    parent_cgroup: String,
    lock: Lock,
    /// The init processes of the pid namespaces of this process's spawners.
    inits: Mutex<Vec<OwnedFd>>,
}

impl RunDir {
    /// Creates and locks a run directory. Fails if it exists already.
    pub fn create(path: &Path, parent_cgroup: &str) -> Result<Self> {
        let base = path.parent().unwrap_or(Path::new("/"));
        make_folder(base, true).map_err(at(base))?;
        // Held until the folder is locked: a sweep takes a folder without a lock for one of the
        // dead.
        let _base_lock = lock(base).map_err(at(base))?;
        make_folder(path, false).map_err(at(path))?;
        // The spawner has it too.
        let lock = lock(path).map_err(at(path))?.until_closed();
        let file = path.join(CGROUP_FILE);
        // Before any group is made: a sweep after a crash learns from it where to look.
        fs::write(&file, parent_cgroup).map_err(at(&file))?;
        let path = path.to_owned();
        let parent_cgroup = parent_cgroup.to_owned();
        Ok(Self { path, parent_cgroup, lock, inits: Mutex::default() })
    }

    /// Keeps the init process of a spawner's pid namespace, to be reaped later.
    pub fn add_init(&self, init: OwnedFd) {
        self.inits().push(init);
    }

    /// Returns the init processes of the pid namespaces.
    pub fn init_processes(&self) -> io::Result<Vec<OwnedFd>> {
        self.inits().iter().map(OwnedFd::try_clone).collect()
    }

    /// Ends the pid namespaces of spawners without lanes: when init has ended, its pid namespace is
    /// empty.
    pub fn end_inits(&self) {
        let inits = std::mem::take(&mut *self.inits());
        pidfd::end_all(&inits);
    }

    fn inits(&self) -> MutexGuard<'_, Vec<OwnedFd>> {
        // Every change is complete within one call.
        self.inits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The descriptor that holds the lock, which the spawner gets to hold the lock too.
    pub fn lock(&self) -> &Lock {
        &self.lock
    }

    /// Removes the remains of one dead lane of the spawner.
    pub fn clean_lane(&self, lane: u32) -> Result<()> {
        match delegated() {
            Some(privileges) => privileges.clean_lane(lane).map_err(at(&self.path)),
            None => clean_lane(&self.parent_cgroup, lane),
        }
    }

    /// Removes the remains of all lanes; all must be dead.
    pub fn clean_lanes(&self) -> Result<()> {
        (0..MAX_LANES).try_for_each(|lane| self.clean_lane(lane))
    }

    /// Removes the remains of a dead spawner: processes, control groups, the folder. Does nothing
    /// where the spawner has removed them.
    pub fn clean(&self) -> Result<()> {
        match delegated() {
            Some(privileges) => privileges.clean().map_err(at(&self.path)),
            None => remove(&self.path, &self.parent_cgroup),
        }
    }

    /// Removes the run directory if this is its last user.
    pub fn remove_if_last(self: Arc<Self>) -> Result<()> {
        Arc::into_inner(self).map_or(Ok(()), |run_dir| {
            run_dir.end_inits();
            run_dir.clean()
        })
    }
}

/// Removes the remains of dead processes under `base`: processes, control groups and folders.
/// Returns the removed folders. Folders of live processes stay.
pub fn sweep(base: &Path) -> Result<Vec<PathBuf>> {
    let Ok(_base_lock) = lock(base) else { return Ok(Vec::new()) };
    let mut removed = Vec::new();
    for entry in fs::read_dir(base).map_err(at(base))? {
        let path = entry.map_err(at(base))?.path();
        // A run directory has this file or, when its removal was interrupted, is empty; and only
        // its owner has the lock.
        let file = path.join(CGROUP_FILE);
        let ours = file.is_file() || is_empty(&path);
        if ours && is_free(&path) {
            remove(&path, &fs::read_to_string(&file).unwrap_or_default())?;
            removed.push(path);
        }
    }
    Ok(removed)
}

fn is_empty(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

fn make_folder(path: &Path, with_parents: bool) -> io::Result<()> {
    DirBuilder::new().mode(0o711).recursive(with_parents).create(path)
}

fn lock(folder: &Path) -> io::Result<Lock> {
    Lock::wait(File::open(folder)?, LockMode::Exclusive)
}

fn is_free(folder: &Path) -> bool {
    let locked = File::open(folder).and_then(|folder| Lock::attempt(folder, LockMode::Exclusive));
    locked.is_ok_and(|lock| lock.is_some())
}
