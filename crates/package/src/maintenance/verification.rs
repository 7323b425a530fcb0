//! Verifies the store against the packages' RECORDs again, on demand: a disk can change a file long
//! after it was first verified.

use super::inventory::{self, Item, ItemKind};
use super::reclamation;
use crate::storage::{FileLock, LockMode, PackageStore};
use crate::wheels::{WheelManifest, record, site};
use crate::{Error, Result};

/// A wheel that does not match its RECORD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// The name of its folder under `wheels/`, which is its digest.
    pub folder: String,
    /// The package that the file belongs to, if it can still be determined.
    pub package: Option<String>,
    /// The first difference.
    pub reason: String,
    /// Whether the wheel and every environment with it were removed, so that it is fetched again
    /// when needed. False while one of them is in use.
    pub removed: bool,
}

/// Verifies every file of every wheel. Skips wheels that are being created or removed.
pub(crate) fn verify(store: &PackageStore) -> Result<Vec<Damaged>> {
    let items = inventory::items(store)?;
    let wheels = items.iter().filter(|item| item.kind == ItemKind::Wheel);
    let mut found = Vec::new();
    for wheel in wheels {
        let Some(lease) = FileLock::try_acquire(&wheel.lock, LockMode::Shared)? else { continue };
        let Some(reason) = damage(wheel) else { continue };
        drop(lease);
        let package = WheelManifest::read(&wheel.folder).map(|found| found.wheel.name);
        let removed = remove_with_environments(store, wheel, &items)?;
        found.push(Damaged { folder: wheel.name.clone(), package, reason, removed });
    }
    Ok(found)
}

fn damage(wheel: &Item) -> Option<String> {
    if !wheel.folder.is_dir() {
        return None;
    }
    let Some(manifest) = WheelManifest::read_whole(&wheel.folder) else {
        return Some("its manifest cannot be read or files are missing".to_owned());
    };
    let site = site(&wheel.folder);
    let verified = record::records(&site).and_then(|records| {
        let own = records.into_iter().find(|one| one.name == manifest.wheel.name);
        let missing = || Error::Corrupt {
            file: "RECORD".to_owned(),
            reason: "it does not exist for this package".to_owned(),
        };
        own.ok_or_else(missing)?.verify(&site)
    });
    verified.err().map(|error| error.to_string())
}

/// Removes the environments with the wheel first, because they link the same files.
fn remove_with_environments(store: &PackageStore, wheel: &Item, items: &[Item]) -> Result<bool> {
    let mut free = true;
    for environment in items.iter().filter(|item| item.wheels.contains(&wheel.name)) {
        free &= !environment.folder.is_dir() || reclamation::remove(store, environment)?;
    }
    Ok(free && reclamation::remove(store, wheel)?)
}
