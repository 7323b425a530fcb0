//! A lock to a published environment.
//!
//! Everything happens in a workspace under `tmp/`. Only when every file was compared with its
//! package's record and flushed to the disk does one rename make it an environment, so a crash at
//! any moment leaves either nothing or the whole.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use snowmelt_types::Digest;

use crate::environment::{Manifest, site};
use crate::files::{self, make_folder};
use crate::installer::Shared;
use crate::resolve::{Lock, is_unreachable};
use crate::uv::{Uv, useful_lines};
use crate::workspace::Workspace;
use crate::{Error, Pinned, Progress, Reporter, Result, process};

/// Makes the environment of a lock. The caller holds the environment's lock alone.
pub(crate) async fn install(
    shared: &Shared,
    lock: &Lock,
    digest: &Digest,
    progress: &dyn Reporter,
) -> Result<()> {
    let workspace = shared.store.workspace()?;
    let environment = workspace.path().join("environment");
    make_folder(&environment, 0o755)?;
    make_folder(&site(&environment), 0o755)?;
    if !lock.text.is_empty() {
        progress.step(&Progress::Unpacking { packages: lock.packages() });
        unpack(shared, lock, &site(&environment)).await?;
        progress.step(&Progress::Verifying);
    }
    let manifest = verify(&environment, lock).await?;
    if !lock.text.is_empty() {
        progress.step(&Progress::Compiling);
        compile(shared, &site(&environment)).await?;
    }
    let target = shared.store.environment(digest);
    blocking(move || publish(workspace, manifest, &target)).await
}

async fn unpack(shared: &Shared, lock: &Lock, target: &Path) -> Result<()> {
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
    let answer = uv.pip(&shared.store.cache(), &arguments, &lock.text, limit).await?;
    if answer.status.success() {
        return Ok(());
    }
    let lines = useful_lines(&answer.stderr);
    if is_unreachable(&answer.stderr) {
        return Err(Error::IndexUnreachable { lines });
    }
    Err(Error::Install { requirements: listed(&lock.packages()), lines })
}

fn listed(packages: &[Pinned]) -> String {
    packages.iter().map(Pinned::to_string).collect::<Vec<_>>().join(", ")
}

async fn verify(environment: &Path, lock: &Lock) -> Result<Manifest> {
    let (site, packages) = (site(environment), lock.packages());
    blocking(move || {
        // Left by uv, writable by everybody.
        let _ = fs::remove_file(site.join(".lock"));
        let records = crate::record::records(&site)?;
        let absent = packages.iter().find(|pin| !records.iter().any(|one| one.name == pin.name));
        if let Some(pin) = absent {
            let reason = "it is in the lock but was not unpacked".to_owned();
            return Err(Error::Corrupt { file: pin.to_string(), reason });
        }
        records.iter().try_for_each(|record| record.verify(&site))?;
        let modules = records.into_iter().map(|one| (one.name.clone(), one.modules())).collect();
        Ok(Manifest { packages, modules, bytes: 0 })
    })
    .await
}

/// Byte code is made once here, because sandboxes see the folder read-only. Tests of packages are
/// left out: they are most of the files and nobody imports them. It is checked by nothing at
/// import (`unchecked-hash`), since neither it nor its source changes any more.
async fn compile(shared: &Shared, site: &Path) -> Result<()> {
    let mut command = tokio::process::Command::new(&shared.python.executable);
    command.args(["-I", "-S", "-m", "compileall", "-q", "-j", "0"]);
    command.args(["--invalidation-mode", "unchecked-hash", "-x", "/tests?/"]);
    command.arg(site).current_dir("/").env_remove("PYTHONPYCACHEPREFIX");
    let limit = shared.install_limit;
    let answer = process::run(&mut command, "", "compiling packages", limit).await?;
    if !answer.status.success() {
        // Packages ship templates and files for other versions that are no Python of this one.
        tracing::debug!(output = answer.stdout, "some files have no byte code");
    }
    Ok(())
}

/// Owns the workspace, so that a caller that goes away cannot have it removed under our hands.
fn publish(workspace: Workspace, mut manifest: Manifest, target: &Path) -> Result<()> {
    let environment = workspace.path().join("environment");
    manifest.bytes = files::bytes_on_disk([&environment]);
    manifest.write(&environment)?;
    files::share_tree(&environment)?;
    files::sync_file_system(&environment)?;
    // What stands there has no manifest that can be read: not one of ours any more.
    files::remove_tree(target)?;
    fs::rename(&environment, target).map_err(Error::io("publish", target))?;
    files::sync_folder(target.parent().unwrap_or(target))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}
