//! Takes back disk space: first what only spares a download, then what was not used for longest.
//!
//! Invariant: nothing goes that is in use. An environment is in use while somebody holds its lock; a
//! wheel is while it is part of an environment, since removing it would free nothing (they are
//! links to the same files) and the environment could not give a subset any more.

use std::collections::HashMap;
use std::fs;
use std::io;

use snowmelt_types::ByteSize;

use crate::files::remove_tree;
use crate::flock::{FileLock, Share};
use crate::shelf::{self, Item, Kind};
use crate::store::Store;
use crate::{Error, Result};

/// What a collection did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Environments removed.
    pub environments: usize,
    /// Wheels removed.
    pub wheels: usize,
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
    if done.left > most {
        remove_oldest(store, most, &mut done)?;
        // Counted until now; measured again because what is removed may have links elsewhere.
        done.left = size();
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

fn remove_oldest(store: &Store, most: ByteSize, done: &mut Reclaimed) -> Result<()> {
    let items = shelf::items(store)?;
    let mut linked = shelf::linked(&items);
    for item in &items {
        if done.left <= most {
            break;
        }
        if is_linked(&linked, item) || !remove(store, item)? {
            continue;
        }
        done.left = ByteSize(done.left.bytes().saturating_sub(item.bytes));
        match item.kind {
            Kind::Environment => done.environments += 1,
            Kind::Wheel => done.wheels += 1,
        }
        for wheel in &item.wheels {
            linked.entry(wheel.clone()).and_modify(|times| *times = times.saturating_sub(1));
        }
    }
    Ok(())
}

/// Removes what nobody could use: an environment or wheel of another version of the platform.
pub(crate) fn remove_unreadable(store: &Store) -> Result<()> {
    for item in shelf::items(store)?.iter().filter(|item| !item.readable) {
        remove(store, item)?;
    }
    Ok(())
}

fn is_linked(linked: &HashMap<String, usize>, item: &Item) -> bool {
    item.kind == Kind::Wheel && linked.get(&item.name).is_some_and(|times| *times > 0)
}

/// Says whether it could. Moves it out of sight first: a crash in the middle must not leave half
/// an item.
pub(crate) fn remove(store: &Store, item: &Item) -> Result<bool> {
    let Some(alone) = FileLock::try_acquire(&item.lock, Share::Exclusive)? else {
        return Ok(false);
    };
    // Used since it was listed: a wheel may be in an environment that the list does not know.
    if item.touched.is_some() && shelf::touched(&item.lock) != item.touched {
        return Ok(false);
    }
    let workspace = store.workspace()?;
    let removed = workspace.path().join("removed");
    let gone = match fs::rename(&item.folder, removed) {
        // Somebody else took it away since it was listed.
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        result => result.map(|()| true).map_err(Error::io("remove", &item.folder))?,
    };
    alone.remove()?;
    Ok(gone)
}
