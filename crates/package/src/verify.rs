//! Compares what is in the store with the packages' records once more, on demand: a disk can
//! change a file long after it was verified.

use crate::flock::{FileLock, Share};
use crate::shelf::{self, Item, Kind};
use crate::store::Store;
use crate::wheel::{WheelManifest, site};
use crate::{Error, Result, reclaim, record};

/// A wheel that is not as its record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// The name of its folder under `wheels/`: its digest.
    pub folder: String,
    /// Its package, if that can still be read.
    pub package: Option<String>,
    /// The first difference that was found.
    pub reason: String,
    /// Whether it and every environment with it were removed, so that the next who needs it gets a
    /// good one. False while one of them is in use.
    pub removed: bool,
}

/// Reads every file of every wheel. What somebody makes or removes just now is left out.
pub(crate) fn verify(store: &Store) -> Result<Vec<Damaged>> {
    let items = shelf::items(store)?;
    let wheels = items.iter().filter(|item| item.kind == Kind::Wheel);
    let mut found = Vec::new();
    for wheel in wheels {
        let Some(lease) = FileLock::try_acquire(&wheel.lock, Share::Shared)? else { continue };
        let Some(reason) = damage(wheel) else { continue };
        drop(lease);
        let package = WheelManifest::read(&wheel.folder).map(|found| found.wheel.name);
        let removed = withdraw(store, wheel, &items)?;
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
            reason: "there is none of its name".to_owned(),
        };
        own.ok_or_else(missing)?.verify(&site)
    });
    verified.err().map(|error| error.to_string())
}

/// The environments first: they are made of the same files.
fn withdraw(store: &Store, wheel: &Item, items: &[Item]) -> Result<bool> {
    let mut free = true;
    for environment in items.iter().filter(|item| item.wheels.contains(&wheel.name)) {
        free &= !environment.folder.is_dir() || reclaim::remove(store, environment)?;
    }
    Ok(free && reclaim::remove(store, wheel)?)
}
