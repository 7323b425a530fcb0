//! Removes packages that nothing uses, whatever the size: every package that no environment in use
//! has, and the download cache.
//!
//! Invariant: a count without removal takes the same locks, so it counts what a removal at the same
//! moment would remove.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use snowmelt_types::{ByteSize, Digest};

use super::inventory::{self, Item, ItemKind};
use super::reclamation::Reclaimed;
use crate::Result;
use crate::environments::InstallerState;
use crate::storage::{FileLock, LockMode, PackageStore, files};

/// A lease of an environment on this host; dropping it gives it back.
#[derive(Debug)]
pub struct EnvironmentLease {
    _lease: FileLock,
}

/// Leases the environment of these wheels, if it is on this host. Holding it does not count as a
/// use.
pub(crate) fn hold(shared: &InstallerState, digest: &Digest) -> Result<Option<EnvironmentLease>> {
    let folder = shared.store.environment(digest);
    if !folder.is_dir() {
        return Ok(None);
    }
    let lock = shared.store.environment_lock(digest.as_str());
    let lease = FileLock::try_acquire(&lock, LockMode::Shared)?;
    Ok(lease.filter(|_| folder.is_dir()).map(|lease| EnvironmentLease { _lease: lease }))
}

/// The packages that [`crate::Installer::gc`] with the size 0 would remove now.
pub(crate) fn count(store: &PackageStore) -> Result<Reclaimed> {
    let items = inventory::items(store)?;
    let mut done = Reclaimed::default();
    let mut gone: HashSet<&PathBuf> = HashSet::new();
    let mut linked: HashMap<String, usize> = inventory::linked(&items);
    for item in &items {
        let is_linked = linked.get(&item.name).is_some_and(|times| *times > 0);
        if item.kind == ItemKind::Wheel && is_linked || !is_free(item)? {
            continue;
        }
        gone.insert(&item.folder);
        match item.kind {
            ItemKind::Environment => done.environments += 1,
            ItemKind::Wheel => done.wheels += 1,
        }
        for wheel in &item.wheels {
            linked.entry(wheel.clone()).and_modify(|times| *times = times.saturating_sub(1));
        }
    }
    let left = items.iter().map(|item| &item.folder).filter(|folder| !gone.contains(folder));
    let cache = FileLock::try_acquire(&store.cache_lock(), LockMode::Exclusive)?;
    let cache = cache.is_none().then(|| store.cache());
    let left = files::bytes_on_disk(left.cloned().chain(cache));
    let all =
        files::bytes_on_disk(items.iter().map(|item| item.folder.clone()).chain([store.cache()]));
    done.left = ByteSize(left);
    done.freed = ByteSize(all.saturating_sub(left));
    Ok(done)
}

fn is_free(item: &Item) -> Result<bool> {
    Ok(FileLock::try_acquire(&item.lock, LockMode::Exclusive)?.is_some())
}
