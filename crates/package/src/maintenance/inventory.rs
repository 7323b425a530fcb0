//! The content of the store with times of last use: for measurement and garbage collection.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::environments::Manifest;
use crate::storage::PackageStore;
use crate::wheels::WheelManifest;
use crate::{Error, Result};

/// The type of an item. Environments sort first: a wheel must not be removed before an environment
/// with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ItemKind {
    Environment,
    Wheel,
}

/// A published folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Item {
    /// The time of the last use; for a wheel, also the last use of any environment with it.
    pub(crate) used: SystemTime,
    pub(crate) kind: ItemKind,
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) lock: PathBuf,
    /// The modification time of the item's lock file, if that exists; each use updates it.
    pub(crate) touched: Option<SystemTime>,
    /// Whether the item's manifest can be read. Items of another version of the platform may not be
    /// readable.
    pub(crate) readable: bool,
    /// Size on disk in bytes; for an environment without its wheels; 0 if the item is not readable.
    pub(crate) bytes: u64,
    /// The names of an environment's wheels.
    pub(crate) wheels: Vec<String>,
}

/// All items of the store, least recently used first, environments before their wheels.
pub(crate) fn items(store: &PackageStore) -> Result<Vec<Item>> {
    let mut environments = environments(store)?;
    let mut used_in: HashMap<String, SystemTime> = HashMap::new();
    for environment in &environments {
        for wheel in &environment.wheels {
            let used = used_in.entry(wheel.clone()).or_insert(environment.used);
            *used = environment.used.max(*used);
        }
    }
    let wheels = wheels(store)?.into_iter().map(|mut wheel| {
        wheel.used = used_in.get(&wheel.name).map_or(wheel.used, |used| wheel.used.max(*used));
        wheel
    });
    environments.extend(wheels);
    environments.sort();
    Ok(environments)
}

fn environments(store: &PackageStore) -> Result<Vec<Item>> {
    let entries = entries(&store.environments())?.into_iter();
    let item = |(name, folder): (String, PathBuf)| {
        let manifest = Manifest::read(&folder);
        let lock = store.environment_lock(&name);
        let item = item(
            ItemKind::Environment,
            name,
            folder,
            lock,
            manifest.as_ref().map(|manifest| manifest.own),
        );
        let wheels = manifest.into_iter().flat_map(|found| found.wheels);
        Item { wheels: wheels.map(|wheel| wheel.digest.as_str().to_owned()).collect(), ..item }
    };
    Ok(entries.map(item).collect())
}

fn wheels(store: &PackageStore) -> Result<Vec<Item>> {
    let entries = entries(&store.wheels())?.into_iter();
    let item = |(name, folder): (String, PathBuf)| {
        let bytes = WheelManifest::read(&folder).map(|found| found.bytes);
        let lock = store.wheel_lock(&name);
        item(ItemKind::Wheel, name, folder, lock, bytes)
    };
    Ok(entries.map(item).collect())
}

fn item(kind: ItemKind, name: String, folder: PathBuf, lock: PathBuf, bytes: Option<u64>) -> Item {
    let touched = touched(&lock);
    // Without a lock file, the item has not been used since the lock files were removed.
    let used = touched.unwrap_or(SystemTime::UNIX_EPOCH);
    let readable = bytes.is_some();
    let bytes = bytes.unwrap_or(0);
    Item { used, kind, name, folder, lock, touched, readable, bytes, wheels: Vec::new() }
}

pub(crate) fn touched(lock: &Path) -> Option<SystemTime> {
    fs::metadata(lock).and_then(|found| found.modified()).ok()
}

fn entries(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let entries = fs::read_dir(folder).map_err(Error::io("read", folder))?.flatten();
    Ok(entries.filter_map(|one| Some((one.file_name().into_string().ok()?, one.path()))).collect())
}

/// The wheels that are part of environments, each with the number of these environments.
pub(crate) fn linked(items: &[Item]) -> HashMap<String, usize> {
    let mut times: HashMap<String, usize> = HashMap::new();
    for name in items.iter().flat_map(|item| item.wheels.iter().collect::<HashSet<_>>()) {
        *times.entry(name.clone()).or_default() += 1;
    }
    times
}
