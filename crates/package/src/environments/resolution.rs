//! Resolves requirements to a lock: exact versions with the hashes of their files.
//!
//! The result is cached for a day, so that a query with the same functions needs neither the
//! resolver nor the network.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use snowmelt_types::Digest;

use super::lock::PackageLock;
use super::state::InstallerState;
use crate::python::uv::{Uv, useful_lines};
use crate::storage::{FileLock, LockMode, write_atomically};
use crate::{Error, InstallProgress, Python, Reporter, Requirement, Result};

/// The time for which a cached result is used.
const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// Settings of the resolver that change its answer.
const SETTINGS: [&str; 8] = [
    "UV_DEFAULT_INDEX",
    "UV_EXCLUDE_NEWER",
    "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS",
    "UV_INDEX",
    "UV_INDEX_URL",
    "UV_PRERELEASE",
    "UV_RESOLUTION",
];

/// A cached result.
#[derive(Serialize, Deserialize)]
struct CacheEntry {
    resolved_at: SystemTime,
    requirements: Vec<String>,
    lock: String,
}

/// Returns the lock for these requirements: from the cache, or from the resolver, which runs for
/// one caller at a time.
pub(crate) async fn resolve(
    shared: &InstallerState,
    requirements: &[Requirement],
    progress: &dyn Reporter,
) -> Result<PackageLock> {
    if requirements.is_empty() {
        return Ok(PackageLock::default());
    }
    let key = key(&shared.python, requirements);
    let path = shared.store.memo(&key);
    if let Some(lock) = cached(&path, shared.refresh) {
        return Ok(lock);
    }
    let waiting = || progress.step(&InstallProgress::Waiting);
    let held =
        FileLock::acquire(&shared.store.memo_lock(&key), LockMode::Exclusive, waiting).await?;
    let answer = match cached(&path, shared.refresh) {
        Some(lock) => Ok(lock),
        None => resolve_and_cache(shared, requirements, &path, progress).await,
    };
    held.remove()?;
    answer
}

/// The last lock for these requirements, however old; empty if there is none.
pub(crate) fn remembered(shared: &InstallerState, requirements: &[Requirement]) -> PackageLock {
    let entry = read(&shared.store.memo(&key(&shared.python, requirements)));
    entry.map_or_else(PackageLock::default, |entry| PackageLock { text: entry.lock })
}

async fn resolve_and_cache(
    shared: &InstallerState,
    requirements: &[Requirement],
    path: &Path,
    progress: &dyn Reporter,
) -> Result<PackageLock> {
    progress.step(&InstallProgress::Resolving { count: requirements.len() });
    let lock = match run_resolver(shared, requirements).await {
        // While the index is unavailable, an old result is better than none.
        Err(error @ (Error::IndexUnreachable { .. } | Error::UvMissing { .. })) => {
            let entry = read(path).ok_or(error)?;
            tracing::warn!("the index cannot be reached: using cached versions");
            return Ok(PackageLock { text: entry.lock });
        }
        answer => answer?,
    };
    let entry = CacheEntry {
        resolved_at: SystemTime::now(),
        requirements: requirements.iter().map(Requirement::to_string).collect(),
        lock: lock.text.clone(),
    };
    let text = serde_json::to_vec(&entry).map_err(|e| Error::io("write", path)(e.into()))?;
    write_atomically(path, &text)?;
    Ok(lock)
}

fn key(python: &Python, requirements: &[Requirement]) -> Digest {
    let settings = SETTINGS.map(|name| std::env::var(name).unwrap_or_default());
    let python = ["memo-1".to_owned(), python.tag.clone(), python.platform.clone()];
    let requirements = requirements.iter().map(Requirement::to_string);
    Digest::of_parts(python.into_iter().chain(settings).chain(requirements))
}

fn cached(path: &Path, refresh: bool) -> Option<PackageLock> {
    let entry = read(path).filter(|_| !refresh)?;
    // A time in the future, after the clock was set back, makes an entry invalid too.
    let age = SystemTime::now().duration_since(entry.resolved_at).ok()?;
    (age < MAX_AGE).then_some(PackageLock { text: entry.lock })
}

fn read(path: &Path) -> Option<CacheEntry> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

async fn run_resolver(
    shared: &InstallerState,
    requirements: &[Requirement],
) -> Result<PackageLock> {
    let uv = Uv::find(shared.uv.as_deref(), &shared.python)?;
    let arguments: [&OsStr; 7] = [
        "compile".as_ref(),
        "-".as_ref(),
        "--python".as_ref(),
        shared.python.executable.as_os_str(),
        "--generate-hashes".as_ref(),
        "--no-header".as_ref(),
        "--no-annotate".as_ref(),
    ];
    let _using = shared.use_cache().await?;
    let lines = requirements.iter().map(|one| Ok(one.line(&shared.store)? + "\n"));
    let input = lines.collect::<Result<String>>()?;
    let limit = ("resolving packages", shared.resolve_limit);
    let answer = uv.pip(&shared.store.cache(), &arguments, &input, limit).await?;
    if answer.status.success() {
        return Ok(PackageLock { text: answer.stdout });
    }
    let lines = useful_lines(&answer.stderr);
    if is_unreachable(&answer.stderr) {
        return Err(Error::IndexUnreachable { lines });
    }
    Err(Error::Unresolvable { requirements: listed(requirements), lines })
}

pub(crate) fn is_unreachable(stderr: &str) -> bool {
    ["error sending request", "Failed to fetch", "network was disabled", "dns error"]
        .iter()
        .any(|sign| stderr.contains(sign))
}

fn listed(requirements: &[Requirement]) -> String {
    requirements.iter().map(Requirement::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_future_cache_entries_are_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memo");
        let written = |resolved_at| {
            let entry = CacheEntry { resolved_at, requirements: vec![], lock: "six==1".to_owned() };
            fs::write(&path, serde_json::to_vec(&entry).unwrap()).unwrap();
            cached(&path, false).is_some()
        };
        let now = SystemTime::now();
        assert!(written(now - Duration::from_secs(60)));
        assert!(cached(&path, true).is_none());
        assert!(!written(now - MAX_AGE - Duration::from_secs(60)));
        assert!(!written(now + Duration::from_secs(3600)));
        fs::write(&path, "{").unwrap();
        assert!(cached(&path, false).is_none());
    }
}
