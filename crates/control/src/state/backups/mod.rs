//! Copies of the state: a server makes one regularly and when it is asked, and `snowmelt backup`
//! puts one in the place of a file that is damaged.
//!
//! Boundary: a copy has the records (functions, UDFs, calls, bursts), not the code, packages,
//! images and logs beside them in the state folder. Invariants: a copy is complete once it has its
//! name; a file that is replaced is kept under another name; copies that are newer than the state,
//! as after a restore, are never removed.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use snowmelt_api::Backup;
use snowmelt_store::redb::{self, Redb};
use snowmelt_store::{Error, Revision};
use snowmelt_types::{ByteSize, Code, ErrorReport, Report};
use tokio_util::sync::CancellationToken;

use crate::access::permissions::{self, failure};
use crate::now_ms;

/// The state, in its folder.
const STATE: &str = "state.redb";
/// The folder of copies.
const FOLDER: &str = "backups";
/// The prefix of the name of a copy that is not complete.
const PARTIAL: &str = "new-";
/// Time between two copies that a server makes unasked, if the state has changed.
const EVERY: Duration = Duration::from_secs(3600);
/// The most copies that are kept of each history of the state.
const MAX_COPIES: usize = 5;
/// Disk space that stays free after a copy that nobody asked for.
const MIN_FREE: ByteSize = ByteSize::mib(512);

/// A copy in the folder of copies. Its name has the time and the revision.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Copy {
    made_ms: u64,
    revision: u64,
    path: PathBuf,
}

impl Copy {
    fn of(path: PathBuf) -> Option<Self> {
        let name = path.file_name()?.to_str()?.strip_prefix("state-")?.strip_suffix(".redb")?;
        let (made_ms, revision) = name.split_once("-r")?;
        Some(Self { made_ms: made_ms.parse().ok()?, revision: revision.parse().ok()?, path })
    }
}

/// Copies of a state folder, the oldest first.
fn copies(state_dir: &Path) -> Vec<Copy> {
    let found = std::fs::read_dir(state_dir.join(FOLDER)).into_iter().flatten().flatten();
    let mut copies: Vec<Copy> = found.filter_map(|entry| Copy::of(entry.path())).collect();
    copies.sort();
    copies
}

/// Returns the path of the state in a folder.
pub(crate) fn state(state_dir: &Path) -> PathBuf {
    state_dir.join(STATE)
}

/// Copies the state into the folder of copies, and removes the oldest ones.
pub(crate) async fn make(store: &Redb) -> Result<Backup, ErrorReport> {
    let state_dir = folder_of(store.path());
    let folder = state_dir.join(FOLDER);
    permissions::private_folder(&folder)?;
    let partial = folder.join(format!("{PARTIAL}{}-{}", std::process::id(), now_ms()));
    let copied = store.copy_to(partial.clone()).await.map_err(|error| error.report())?;
    let path = folder.join(format!("state-{:013}-r{copied}.redb", now_ms()));
    let named = std::fs::rename(&partial, &path).and_then(|()| std::fs::metadata(&path));
    let bytes = named.map_err(|error| failure(&path, &error))?.len();
    prune(state_dir, copied);
    Ok(Backup { file: path.display().to_string(), bytes })
}

/// Removes the oldest copies of this history of the state.
fn prune(state_dir: &Path, at: Revision) {
    let mut copies = copies(state_dir);
    copies.retain(|copy| copy.revision <= at.0);
    for copy in copies.iter().rev().skip(MAX_COPIES) {
        if let Err(error) = std::fs::remove_file(&copy.path) {
            tracing::warn!(copy = %copy.path.display(), %error, "an old copy cannot be removed");
        }
    }
}

/// Copies the state regularly, if it has changed and the disk has room.
pub(crate) async fn keep(store: Redb, over: CancellationToken) {
    sweep(folder_of(store.path()));
    let mut tick = tokio::time::interval(EVERY);
    while over.run_until_cancelled(tick.tick()).await.is_some() {
        match due(&store).await {
            Ok(true) => {}
            Ok(false) => continue,
            Err(error) => {
                tracing::warn!(error = %error.message, "the state is not copied");
                continue;
            }
        }
        match make(&store).await {
            Ok(copy) => tracing::info!(copy = copy.file, bytes = copy.bytes, "the state is copied"),
            Err(error) => tracing::warn!(error = %error.message, "the state cannot be copied"),
        }
    }
}

/// Removes copies that a process which was killed has not completed.
fn sweep(state_dir: &Path) {
    let found = std::fs::read_dir(state_dir.join(FOLDER)).into_iter().flatten().flatten();
    for entry in found.filter(|entry| entry.file_name().to_string_lossy().starts_with(PARTIAL)) {
        let _ = std::fs::remove_file(entry.path());
    }
}

/// Returns whether the state has changed since its last copy.
async fn due(store: &Redb) -> Result<bool, ErrorReport> {
    let state_dir = folder_of(store.path());
    let at = store.revision().await.map_err(|error| error.report())?;
    if at == Revision::default()
        || copies(state_dir).last().is_some_and(|last| last.revision == at.0)
    {
        return Ok(false);
    }
    let failed = |error: std::io::Error| failure(state_dir, &error);
    let size = std::fs::metadata(store.path()).map_err(failed)?.len();
    let disk = rustix::fs::statvfs(state_dir).map_err(|error| failed(error.into()))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free < size.saturating_add(MIN_FREE.bytes()) {
        let message = format!("the disk of {} has only {}", state_dir.display(), ByteSize(free));
        return Err(ErrorReport::new(Code::DISK_FULL, message));
    }
    Ok(true)
}

/// The result of a restore.
#[derive(Debug)]
pub struct Restored {
    /// The copy that is the state now.
    pub from: PathBuf,
    /// The new name of the file that was the state, if there was one.
    pub kept: Option<PathBuf>,
}

/// Makes a copy the state of a folder: the newest one if none is named. The file that was the state
/// gets another name.
///
/// # Errors
/// `SM-0504` while a server runs, `SM-0505` for a copy that is missing or damaged, `SM-0506`.
pub fn restore(state_dir: &Path, from: Option<&Path>) -> Result<Restored, ErrorReport> {
    let _lock = permissions::server_lock(state_dir)?;
    let from = match from {
        Some(from) => from.to_owned(),
        None => copies(state_dir).pop().map(|copy| copy.path).ok_or_else(|| {
            let folder = state_dir.join(FOLDER);
            let message = format!("there is no copy of the state in {}", folder.display());
            ErrorReport::new(Code::STATE, message)
                .hint("name a file: snowmelt backup --restore FILE")
        })?,
    };
    let path = state(state_dir);
    let made = state_dir.join("state.redb.restored");
    let replaced = || -> std::io::Result<Option<PathBuf>> {
        let kept = state_dir.join(format!("{STATE}.replaced-{}", now_ms()));
        let kept = match std::fs::rename(&path, &kept) {
            Ok(()) => Some(kept),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        std::fs::rename(&made, &path)?;
        std::fs::File::open(state_dir)?.sync_all()?;
        Ok(kept)
    };
    let copied = permissions::private_file(&made).and_then(|file| {
        file.set_len(0)?;
        std::io::copy(&mut std::fs::File::open(&from)?, &mut &file)?;
        file.sync_all()
    });
    // A check of the copy itself would write to it.
    let checked = copied.map_err(|error| failure(&from, &error)).and_then(|()| {
        redb::check(&made).map_err(|error| match error {
            Error::Corrupt { what, .. } => {
                let message = format!("{} cannot be the state: {what}", from.display());
                ErrorReport::new(Code::STATE, message)
            }
            error => error.report(),
        })
    });
    let kept = checked.and_then(|()| replaced().map_err(|error| failure(&path, &error)));
    let _ = std::fs::remove_file(&made);
    Ok(Restored { from, kept: kept? })
}

/// The report of a state that cannot be opened, with the copy that can take its place.
pub(crate) fn explained(path: &Path, error: &Error) -> ErrorReport {
    let report = error.report();
    if !matches!(error, Error::Corrupt { .. }) {
        return report;
    }
    let report = ErrorReport::new(Code::STATE, report.message);
    match copies(folder_of(path)).pop() {
        Some(copy) => report.hint(format!(
            "`snowmelt backup --restore` puts {} in its place and keeps the damaged file",
            copy.path.display()
        )),
        None => report.hint(
            "there is no copy of it: restore one with `snowmelt backup --restore FILE`, or move the \
             file away to begin with an empty platform",
        ),
    }
}

fn folder_of(state: &Path) -> &Path {
    state.parent().unwrap_or(Path::new("."))
}
