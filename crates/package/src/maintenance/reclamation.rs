//! Frees disk space: first the download cache, then packages in LRU order.
//!
//! Invariant: nothing in use is removed. An environment is in use while its lock is held. A wheel
//! is in use while it is part of an environment: its removal would free no space, because the
//! environment has links to the same files, and would prevent subsets of the environment.

use std::collections::HashMap;
use std::fs;
use std::io;

use snowmelt_types::ByteSize;

use super::inventory::{self, Item, ItemKind};
use crate::storage::{FileLock, LockMode, PackageStore, remove_tree};
use crate::{Error, Result};

/// The result of a garbage collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// The number of removed environments.
    pub environments: usize,
    /// The number of removed wheels.
    pub wheels: usize,
    /// The space that was freed on disk.
    pub freed: ByteSize,
    /// The space that is still used on disk.
    pub left: ByteSize,
}

/// Removes packages until the size is at most `max_size` or everything left is in use.
pub(crate) fn reclaim(
    store: &PackageStore,
    max_size: ByteSize,
    size: impl Fn() -> ByteSize,
) -> Result<Reclaimed> {
    let before = size();
    let mut done = Reclaimed { left: before, ..Reclaimed::default() };
    if before > max_size {
        remove_cache(store)?;
        done.left = size();
    }
    if done.left > max_size {
        remove_oldest(store, max_size, &mut done)?;
        // Estimated so far; measured again because removed files may have links elsewhere.
        done.left = size();
    }
    done.freed = ByteSize(before.bytes().saturating_sub(done.left.bytes()));
    Ok(done)
}

fn remove_cache(store: &PackageStore) -> Result<()> {
    match FileLock::try_acquire(&store.cache_lock(), LockMode::Exclusive)? {
        Some(_alone) => remove_tree(&store.cache()),
        None => Ok(()),
    }
}

fn remove_oldest(store: &PackageStore, max_size: ByteSize, done: &mut Reclaimed) -> Result<()> {
    let items = inventory::items(store)?;
    let mut linked = inventory::linked(&items);
    for item in &items {
        if done.left <= max_size {
            break;
        }
        if is_linked(&linked, item) || !remove(store, item)? {
            continue;
        }
        done.left = ByteSize(done.left.bytes().saturating_sub(item.bytes));
        match item.kind {
            ItemKind::Environment => done.environments += 1,
            ItemKind::Wheel => done.wheels += 1,
        }
        for wheel in &item.wheels {
            linked.entry(wheel.clone()).and_modify(|times| *times = times.saturating_sub(1));
        }
    }
    Ok(())
}

/// Removes environments and wheels that this version of the platform cannot read.
pub(crate) fn remove_unreadable(store: &PackageStore) -> Result<()> {
    for item in inventory::items(store)?.iter().filter(|item| !item.readable) {
        remove(store, item)?;
    }
    Ok(())
}

fn is_linked(linked: &HashMap<String, usize>, item: &Item) -> bool {
    item.kind == ItemKind::Wheel && linked.get(&item.name).is_some_and(|times| *times > 0)
}

/// Removes an item. Returns whether that was possible. The item is renamed first, so that a crash
/// does not leave an incomplete item.
pub(crate) fn remove(store: &PackageStore, item: &Item) -> Result<bool> {
    let Some(alone) = FileLock::try_acquire(&item.lock, LockMode::Exclusive)? else {
        return Ok(false);
    };
    // Used since it was listed: a wheel may now be part of an environment that is not in the list.
    if item.touched.is_some() && inventory::touched(&item.lock) != item.touched {
        return Ok(false);
    }
    let workspace = store.workspace()?;
    let removed = workspace.path().join("removed");
    let gone = match fs::rename(&item.folder, removed) {
        // Another process has removed it since it was listed.
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        result => result.map(|()| true).map_err(Error::io("remove", &item.folder))?,
    };
    alone.remove()?;
    Ok(gone)
}
