//! Assembles wheels to a published environment.
//!
//! Each wheel is unpacked once; environments only link its files. Like a wheel, an environment is
//! assembled in a workspace and published by one rename.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use snowmelt_types::Digest;

use super::environment::{Manifest, site};
use super::links::{WheelFolder, link};
use super::lock::Pin;
use super::state::InstallerState;
use super::unpacking::unpack;
use crate::storage::{FileLock, LockMode, Once, Workspace, blocking, files, make_folder, once};
use crate::wheels::{LockedWheel, Wheel, WheelManifest, wheel};
use crate::{Error, InstallProgress, Reporter, Result};

/// The wheels of these pins, sorted by name. Two are unpacked concurrently, so that one is fetched
/// while the other is compiled.
pub(crate) async fn gather(
    shared: &InstallerState,
    pins: &[Pin],
    progress: &dyn Reporter,
) -> Result<Vec<LockedWheel>> {
    let next = AtomicUsize::new(0);
    let work = || gather_some(shared, pins, &next, progress);
    let (mut wheels, others) = tokio::try_join!(work(), work())?;
    wheels.extend(others);
    wheels.sort_by(|a, b| a.manifest.wheel.cmp(&b.manifest.wheel));
    Ok(wheels)
}

async fn gather_some(
    shared: &InstallerState,
    pins: &[Pin],
    next: &AtomicUsize,
    progress: &dyn Reporter,
) -> Result<Vec<LockedWheel>> {
    let mut wheels = Vec::new();
    while let Some(pin) = pins.get(next.fetch_add(1, Relaxed)) {
        wheels.push(lock_or_unpack(shared, pin, progress).await?);
    }
    Ok(wheels)
}

async fn lock_or_unpack(
    shared: &InstallerState,
    pin: &Pin,
    progress: &dyn Reporter,
) -> Result<LockedWheel> {
    let digest = pin.digest(&shared.python);
    let folder = shared.store.wheel(&digest);
    let lock = shared.store.wheel_lock(digest.as_str());
    let held = once(
        &lock,
        || progress.step(&InstallProgress::Waiting),
        || WheelManifest::read_whole(&folder),
        || unpack(shared, pin, &digest, progress),
    );
    let Once { found, lease, made } = held.await?;
    shared.counts.wheel(made);
    Ok(LockedWheel { manifest: found, site: wheel::site(&folder), _lease: lease })
}

/// Locks wheels that exist. A wheel is not reclaimed while an environment with it is in use, so a
/// missing wheel was removed or damaged by other means.
pub(crate) async fn lock_wheels(
    shared: &InstallerState,
    wheels: &[Wheel],
) -> Result<Vec<LockedWheel>> {
    let mut held = Vec::new();
    for wheel in wheels {
        let lock = shared.store.wheel_lock(wheel.digest.as_str());
        let lease = FileLock::acquire(&lock, LockMode::Shared, || ()).await?;
        let folder = shared.store.wheel(&wheel.digest);
        let Some(manifest) = WheelManifest::read_whole(&folder) else {
            return Err(Error::WheelMissing {
                wheel: format!("{}=={}", wheel.name, wheel.version),
            });
        };
        lease.touch()?;
        shared.counts.wheel(false);
        held.push(LockedWheel { manifest, site: wheel::site(&folder), _lease: lease });
    }
    Ok(held)
}

/// Publishes the environment of these wheels, which must be sorted by name. The caller holds the
/// environment's exclusive lock.
pub(crate) async fn assemble(
    shared: &InstallerState,
    wheels: Vec<LockedWheel>,
    digest: &Digest,
) -> Result<()> {
    let workspace = shared.store.workspace()?;
    let counts = shared.counts.clone();
    let target = shared.store.environment(digest);
    blocking(move || {
        counts.add_bytes(publish(&workspace, &wheels, &target)?);
        Ok(())
    })
    .await
}

/// Returns the bytes on disk that the environment takes in addition to its wheels.
fn publish(workspace: &Workspace, wheels: &[LockedWheel], target: &Path) -> Result<u64> {
    let environment = workspace.path().join("environment");
    make_folder(&environment, 0o755)?;
    make_folder(&site(&environment), 0o755)?;
    let source = |held: &LockedWheel| WheelFolder {
        name: held.manifest.wheel.name.clone(),
        site: held.site.clone(),
    };
    let sources: Vec<WheelFolder> = wheels.iter().map(source).collect();
    let linked = link(&sources, &site(&environment))?;
    let of_wheels: u64 = wheels.iter().map(|held| held.manifest.bytes).sum();
    let manifest = Manifest {
        wheels: wheels.iter().map(|held| held.manifest.wheel.clone()).collect(),
        conflicts: linked.conflicts,
        bytes: of_wheels + linked.own_bytes,
        own: linked.own_bytes,
    };
    if linked.copied {
        files::sync_file_system(&environment)?;
    }
    // Flushed last: the journal keeps the order of changes to folders, so once the manifest is on
    // the disk, the links are too. The files themselves were flushed with their wheels.
    manifest.write(&environment)?;
    // An existing target has no readable manifest, so it is not a valid environment.
    files::remove_tree(target)?;
    fs::rename(&environment, target).map_err(Error::io("publish", target))?;
    files::sync_folder(target.parent().unwrap_or(target))?;
    Ok(linked.own_bytes)
}
