//! Unpacks one pin of a lock to a published wheel.
//!
//! All work is done in a workspace under `tmp/`. The wheel is published by one rename after every
//! file was verified against the package's RECORD and flushed to the disk, so a crash leaves either
//! nothing or the complete wheel.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use snowmelt_types::Digest;

use super::local_packages;
use super::lock::{Pin, PinOrigin};
use super::resolution::is_unreachable;
use super::state::InstallerState;
use crate::python::process;
use crate::python::uv::{Uv, useful_lines};
use crate::storage::{Workspace, blocking, files, make_folder};
use crate::wheels::{Record, Wheel, WheelManifest, site, upload};
use crate::{Error, InstallProgress, Reporter, Result};

/// Creates the wheel of a pin. The caller holds the wheel's exclusive lock.
pub(crate) async fn unpack(
    shared: &InstallerState,
    pin: &Pin,
    digest: &Digest,
    progress: &dyn Reporter,
) -> Result<()> {
    let workspace = shared.store.workspace()?;
    let folder = workspace.path().join("wheel");
    make_folder(&folder, 0o755)?;
    make_folder(&site(&folder), 0o755)?;
    let package = pin.pinned.clone();
    progress.step(&InstallProgress::Unpacking { packages: vec![package.clone()] });
    let cache = shared.store.cache();
    fetch(shared, pin, &cache, &site(&folder)).await?;
    progress.step(&InstallProgress::Verifying { package: package.clone() });
    let record = match verify(pin, &folder).await {
        // Its files are linked with uv's cache, which may be damaged: use an empty cache and fetch
        // from the index.
        Err(Error::Corrupt { file, reason })
            if !matches!(pin.origin, PinOrigin::Installed { .. }) =>
        {
            tracing::warn!(%file, %reason, "fetching a damaged package again");
            fetch_again(shared, pin, &workspace, &folder).await?;
            verify(pin, &folder).await?
        }
        verified => verified?,
    };
    progress.step(&InstallProgress::Compiling { package });
    compile(shared, &site(&folder), record.sources()).await?;
    let wheel = Wheel {
        name: pin.pinned.name.clone(),
        version: pin.pinned.version.clone(),
        digest: digest.clone(),
        modules: record.modules(),
    };
    let target = shared.store.wheel(digest);
    let counts = shared.counts.clone();
    blocking(move || {
        let bytes = publish(&workspace, wheel, &target)?;
        counts.add_bytes(bytes);
        Ok(())
    })
    .await
}

async fn fetch(shared: &InstallerState, pin: &Pin, cache: &Path, target: &Path) -> Result<()> {
    if let PinOrigin::Installed { folder, info } = pin.origin.clone() {
        let target = target.to_owned();
        return blocking(move || local_packages::copy(&folder, &info, &target)).await;
    }
    let uv = Uv::find(shared.uv.as_deref(), &shared.python)?;
    let arguments: [&OsStr; 11] = [
        "install".as_ref(),
        "--requirement".as_ref(),
        "-".as_ref(),
        "--python".as_ref(),
        shared.python.executable.as_os_str(),
        "--target".as_ref(),
        target.as_os_str(),
        "--require-hashes".as_ref(),
        "--no-deps".as_ref(),
        "--link-mode".as_ref(),
        "hardlink".as_ref(),
    ];
    let limit = ("unpacking packages", shared.install_limit);
    let _using = shared.use_cache().await?;
    if pin.origin == PinOrigin::Uploaded && !upload::is_kept(&shared.store, &pin.hashes) {
        return Err(Error::UploadedWheelMissing { wheel: pin.pinned.to_string() });
    }
    let answer = uv.pip(cache, &arguments, &pin.text, limit).await?;
    if answer.status.success() {
        return Ok(());
    }
    let lines = useful_lines(&answer.stderr);
    if is_unreachable(&answer.stderr) {
        return Err(Error::IndexUnreachable { lines });
    }
    Err(Error::Install { requirements: pin.pinned.to_string(), lines })
}

async fn fetch_again(
    shared: &InstallerState,
    pin: &Pin,
    workspace: &Workspace,
    folder: &Path,
) -> Result<()> {
    files::remove_tree(&site(folder))?;
    make_folder(&site(folder), 0o755)?;
    let cache = workspace.path().join("cache");
    make_folder(&cache, 0o700)?;
    fetch(shared, pin, &cache, &site(folder)).await
}

async fn verify(pin: &Pin, folder: &Path) -> Result<Record> {
    let site = site(folder);
    let pinned = pin.pinned.clone();
    blocking(move || {
        // Created by uv, world-writable.
        let _ = fs::remove_file(site.join(".lock"));
        let records = crate::wheels::records(&site)?;
        let Some(record) = records.into_iter().find(|one| one.name == pinned.name) else {
            let reason = "it is locked but was not unpacked".to_owned();
            return Err(Error::Corrupt { file: pinned.to_string(), reason });
        };
        record.verify(&site)?;
        Ok(record)
    })
    .await
}

/// Compiles byte code once, because sandboxes see the folder read-only. Tests of packages are
/// skipped: they are most of the files and are not imported. The byte code is not validated at
/// import (`unchecked-hash`), because neither it nor its source changes. Paths are relative, so
/// that the skipped files and the result do not depend on the position of the store.
async fn compile(shared: &InstallerState, site: &Path, sources: usize) -> Result<()> {
    // For a few files, starting helpers costs more than it saves.
    const MANY: usize = 100;
    let helpers = if sources > MANY { "0" } else { "1" };
    let mut command = tokio::process::Command::new(&shared.python.executable);
    command.args(["-I", "-S", "-m", "compileall", "-q", "-j", helpers]);
    command.args(["--invalidation-mode", "unchecked-hash", "-x", "/tests?/", "."]);
    command.current_dir(site).env_remove("PYTHONPYCACHEPREFIX");
    let limit = shared.install_limit;
    let answer = process::run(&mut command, "", "compiling packages", limit).await?;
    if !answer.status.success() {
        // Packages contain templates, and files for other versions that are not valid Python for
        // this one.
        tracing::debug!(output = answer.stdout, "some files have no byte code");
    }
    Ok(())
}

/// Publishes a wheel and returns its bytes on disk. Runs with the workspace on a thread that cannot
/// be cancelled, so that dropping the future does not remove the workspace during the work.
fn publish(workspace: &Workspace, wheel: Wheel, target: &Path) -> Result<u64> {
    let folder = workspace.path().join("wheel");
    files::share_tree(&folder)?;
    let files = files::count_files(&site(&folder))?;
    let bytes = files::bytes_on_disk([&folder]);
    WheelManifest { wheel, files, bytes }.write(&folder)?;
    files::sync_file_system(&folder)?;
    // An existing target is incomplete, so it is not a valid wheel.
    files::remove_tree(target)?;
    fs::rename(&folder, target).map_err(Error::io("publish", target))?;
    files::sync_folder(target.parent().unwrap_or(target))?;
    Ok(bytes)
}
