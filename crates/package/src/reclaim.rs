//! Takes back disk space: first what only spares a download, then what was not used for longest.

use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use snowmelt_types::ByteSize;

use crate::files::remove_tree;
use crate::flock::{FileLock, Share};
use crate::store::Store;
use crate::{Error, Result};

/// What a collection did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Environments removed.
    pub environments: usize,
    /// Bytes on disk given back.
    pub freed: ByteSize,
    /// Bytes on disk still used.
    pub left: ByteSize,
}

/// Removes until `size` is at most `most` or everything left is in use.
pub(crate) fn reclaim(
    store: &Store,
    most: ByteSize,
    size: impl Fn() -> ByteSize,
) -> Result<Reclaimed> {
    let before = size();
    let mut done = Reclaimed { left: before, ..Reclaimed::default() };
    if before > most {
        remove_cache(store)?;
        done.left = size();
    }
    for name in oldest_first(store)? {
        if done.left <= most {
            break;
        }
        if remove_environment(store, &name)? {
            done.environments += 1;
            done.left = size();
        }
    }
    done.freed = ByteSize(before.bytes().saturating_sub(done.left.bytes()));
    Ok(done)
}

fn remove_cache(store: &Store) -> Result<()> {
    match FileLock::try_acquire(&store.cache_lock(), Share::Exclusive)? {
        Some(_alone) => remove_tree(&store.cache()),
        None => Ok(()),
    }
}

/// Names of environments by the time of their last use.
fn oldest_first(store: &Store) -> Result<Vec<String>> {
    let folder = store.environments();
    let entries = fs::read_dir(&folder).map_err(Error::io("read", &folder))?.flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut used: Vec<_> =
        names.map(|name| (last_use(store.environment_lock(&name)), name)).collect();
    used.sort();
    Ok(used.into_iter().map(|(_, name)| name).collect())
}

/// An environment without a lock file was used by nobody since its lock was cleared away.
fn last_use(lock: PathBuf) -> SystemTime {
    fs::metadata(lock).and_then(|found| found.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Moves it out of sight first: a crash in the middle must not leave half an environment.
fn remove_environment(store: &Store, name: &str) -> Result<bool> {
    let lock = store.environment_lock(name);
    let Some(alone) = FileLock::try_acquire(&lock, Share::Exclusive)? else { return Ok(false) };
    let workspace = store.workspace()?;
    let path = store.environments().join(name);
    fs::rename(&path, workspace.path().join("removed")).map_err(Error::io("remove", &path))?;
    alone.remove()?;
    Ok(true)
}
