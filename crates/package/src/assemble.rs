//! Wheels to a published environment.
//!
//! Each wheel is unpacked once, whatever sets it is part of; an environment only links them. As
//! with a wheel, it is put together in a workspace and becomes visible by one rename.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use snowmelt_types::Digest;

use crate::blocking::blocking;
use crate::environment::{Manifest, site};
use crate::files::{self, make_folder};
use crate::flock::{FileLock, Share};
use crate::installer::Shared;
use crate::link::{Source, link};
use crate::lock::Pin;
use crate::once::{Once, once};
use crate::unpack::unpack;
use crate::wheel::{self, HeldWheel, Wheel, WheelManifest};
use crate::workspace::Workspace;
use crate::{Error, Progress, Reporter, Result};

/// The wheels of these pins, sorted by name. Two are unpacked at a time, so that one is fetched
/// while the other is compiled.
pub(crate) async fn gather(
    shared: &Shared,
    pins: &[Pin],
    progress: &dyn Reporter,
) -> Result<Vec<HeldWheel>> {
    let next = AtomicUsize::new(0);
    let work = || gather_some(shared, pins, &next, progress);
    let (mut wheels, others) = tokio::try_join!(work(), work())?;
    wheels.extend(others);
    wheels.sort_by(|a, b| a.manifest.wheel.cmp(&b.manifest.wheel));
    Ok(wheels)
}

async fn gather_some(
    shared: &Shared,
    pins: &[Pin],
    next: &AtomicUsize,
    progress: &dyn Reporter,
) -> Result<Vec<HeldWheel>> {
    let mut wheels = Vec::new();
    while let Some(pin) = pins.get(next.fetch_add(1, Relaxed)) {
        wheels.push(hold_or_unpack(shared, pin, progress).await?);
    }
    Ok(wheels)
}

async fn hold_or_unpack(shared: &Shared, pin: &Pin, progress: &dyn Reporter) -> Result<HeldWheel> {
    let digest = pin.digest(&shared.python);
    let folder = shared.store.wheel(&digest);
    let lock = shared.store.wheel_lock(digest.as_str());
    let held = once(
        &lock,
        || progress.step(&Progress::Waiting),
        || WheelManifest::read_whole(&folder),
        || unpack(shared, pin, &digest, progress),
    );
    let Once { found, lease, made } = held.await?;
    shared.counts.wheel(made);
    Ok(HeldWheel { manifest: found, site: wheel::site(&folder), _lease: lease })
}

/// Wheels that are there already. An environment that is in use keeps its wheels from being
/// reclaimed, so what is missing was taken or damaged by other hands.
pub(crate) async fn hold(shared: &Shared, wheels: &[Wheel]) -> Result<Vec<HeldWheel>> {
    let mut held = Vec::new();
    for wheel in wheels {
        let lock = shared.store.wheel_lock(wheel.digest.as_str());
        let lease = FileLock::acquire(&lock, Share::Shared, || ()).await?;
        let folder = shared.store.wheel(&wheel.digest);
        let Some(manifest) = WheelManifest::read_whole(&folder) else {
            return Err(Error::WheelMissing {
                wheel: format!("{}=={}", wheel.name, wheel.version),
            });
        };
        lease.touch()?;
        shared.counts.wheel(false);
        held.push(HeldWheel { manifest, site: wheel::site(&folder), _lease: lease });
    }
    Ok(held)
}

/// Publishes the environment of these wheels, which come sorted by name. The caller holds the
/// environment's lock alone.
pub(crate) async fn assemble(
    shared: &Shared,
    wheels: Vec<HeldWheel>,
    digest: &Digest,
) -> Result<()> {
    let (workspace, counts) = (shared.store.workspace()?, shared.counts.clone());
    let target = shared.store.environment(digest);
    blocking(move || {
        counts.grew(publish(&workspace, &wheels, &target)?);
        Ok(())
    })
    .await
}

/// Gives the bytes on disk that it takes beside the wheels.
fn publish(workspace: &Workspace, wheels: &[HeldWheel], target: &Path) -> Result<u64> {
    let environment = workspace.path().join("environment");
    make_folder(&environment, 0o755)?;
    make_folder(&site(&environment), 0o755)?;
    let source = |held: &HeldWheel| Source {
        name: held.manifest.wheel.name.clone(),
        site: held.site.clone(),
    };
    let sources: Vec<Source> = wheels.iter().map(source).collect();
    let linked = link(&sources, &site(&environment))?;
    let of_wheels: u64 = wheels.iter().map(|held| held.manifest.bytes).sum();
    let manifest = Manifest {
        wheels: wheels.iter().map(|held| held.manifest.wheel.clone()).collect(),
        conflicts: linked.conflicts,
        bytes: of_wheels + linked.own,
        own: linked.own,
    };
    if linked.copied {
        files::sync_file_system(&environment)?;
    }
    // Flushed last: journals keep the order of changes to folders, so the links are on the disk as
    // well once the manifest is. The files themselves were flushed with their wheels.
    manifest.write(&environment)?;
    // What stands there has no manifest that can be read: not one of ours any more.
    files::remove_tree(target)?;
    fs::rename(&environment, target).map_err(Error::io("publish", target))?;
    files::sync_folder(target.parent().unwrap_or(target))?;
    Ok(linked.own)
}
