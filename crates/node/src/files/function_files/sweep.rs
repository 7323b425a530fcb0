//! The removal of files that no function has any more.

use std::collections::{BTreeSet, HashMap};
use std::fs::{DirEntry, File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use snowmelt_kernel::lock::{Lock, LockMode};
use snowmelt_types::Tenant;

use super::{FileStore, TEMPORARY, UNUSED_KEPT};
use crate::Result;
use crate::files::code::{RemovedFiles, state};

/// The age from which a file or folder that is being made counts as left by a killed process.
const MAKING_TIMEOUT: Duration = Duration::from_secs(3600);

impl FileStore {
    /// Removes the contents `digests` of a tenant, which no function has any more. Returns the
    /// digests of those that have to stay for now, because an instance sees them.
    pub fn release(&self, tenant: &Tenant, digests: &BTreeSet<String>) -> Result<BTreeSet<String>> {
        let trees = self.trees(tenant);
        let blobs = self.blobs(tenant);
        // A folder is made again at its next use.
        for tree in entries(&trees)? {
            remove_tree(&tree, |_| true, None).map_err(state(&trees))?;
        }
        let mut left = BTreeSet::new();
        for digest in digests {
            let path = blobs.join(digest);
            if !remove_blob(&path, |_| true).map_err(state(&path))? {
                left.insert(digest.clone());
            }
        }
        Ok(left)
    }

    /// Removes contents that no function has used for `UNUSED_KEPT`, from a store for files that
    /// control sends: this host does not know what is deployed or registered.
    pub(crate) async fn sweep_received(&self) {
        let store = self.clone();
        let swept = move || store.sweep(&BTreeSet::new(), UNUSED_KEPT);
        if let Ok(Err(error)) = tokio::task::spawn_blocking(swept).await {
            tracing::warn!(%error, "old files of functions cannot be removed");
        }
    }

    /// Removes contents that were not used for the time `unused` and that are not among `kept`, and
    /// folders of links that were not used for as long.
    pub fn sweep(&self, kept: &BTreeSet<(Tenant, String)>, unused: Duration) -> Result<()> {
        self.prune(kept, unused, None, false).map(drop)
    }

    /// Does the same as `sweep` for one tenant, or for all, and returns what was removed; with
    /// `dry`, only counts it.
    pub fn prune(
        &self,
        kept: &BTreeSet<(Tenant, String)>,
        unused: Duration,
        of: Option<&Tenant>,
        dry: bool,
    ) -> Result<RemovedFiles> {
        let is_old = |found: &Metadata| is_older(found, unused);
        let mut removed = RemovedFiles::default();
        for folder in entries(&self.root)? {
            let name = folder.file_name().to_string_lossy().into_owned();
            let Ok(tenant) = name.parse::<Tenant>() else { continue };
            if of.is_some_and(|of| *of != tenant) {
                continue;
            }
            let trees = self.trees(&tenant);
            let blobs = self.blobs(&tenant);
            let mut links = HashMap::new();
            for tree in entries(&trees)? {
                remove_tree(&tree, is_old, dry.then_some(&mut links)).map_err(state(&trees))?;
            }
            for blob in entries(&blobs)? {
                let digest = blob.file_name().to_string_lossy().into_owned();
                if kept.contains(&(tenant.clone(), digest.clone())) {
                    continue;
                }
                let is_temporary = digest.starts_with(TEMPORARY);
                let least = if is_temporary { MAKING_TIMEOUT.max(unused) } else { unused };
                let Ok(found) = blob.metadata() else { continue };
                let others = found.nlink().saturating_sub(1);
                let is_free = links.get(&found.ino()).copied().unwrap_or(0) >= others;
                let is_removed = match dry {
                    true => is_free && is_older(&found, least),
                    false => remove_blob(&blob.path(), |found| is_older(found, least))
                        .map_err(state(&blobs))?,
                };
                if is_removed {
                    removed.add(found.blocks() * 512);
                }
            }
        }
        Ok(removed)
    }
}

/// The number of links to each content from folders that would be removed, by the content's inode
/// number.
type Links = HashMap<u64, u64>;

/// Counts the links in a folder and in the folders below.
fn count(folder: &Path, links: &mut Links) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let found = entry.metadata()?;
        match found.is_dir() {
            true => count(&entry.path(), links)?,
            false => *links.entry(found.ino()).or_default() += 1,
        }
    }
    Ok(())
}

/// Returns the entries of a folder; none if there is no such folder.
pub(crate) fn entries(folder: &Path) -> Result<Vec<DirEntry>> {
    match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        read => read.and_then(Iterator::collect).map_err(state(folder)),
    }
}

pub(crate) fn is_older(found: &Metadata, age: Duration) -> bool {
    found.modified().is_ok_and(|time| time.elapsed().is_ok_and(|elapsed| elapsed >= age))
}

/// Removes a folder that nobody uses, or with `counted` only counts its links. The folder gets
/// another name first, so that it is never seen in parts.
fn remove_tree(
    tree: &DirEntry,
    may_go: impl Fn(&Metadata) -> bool,
    counted: Option<&mut Links>,
) -> io::Result<()> {
    let path = tree.path();
    let folder = match File::open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let is_temporary = tree.file_name().to_string_lossy().starts_with(TEMPORARY);
    let found = folder.metadata()?;
    let is_being_made = is_temporary && !is_older(&found, MAKING_TIMEOUT);
    if is_being_made || !may_go(&found) {
        return Ok(());
    }
    let Some(_unused) = Lock::attempt(folder, LockMode::Exclusive)? else { return Ok(()) };
    if let Some(links) = counted {
        return count(&path, links);
    }
    let aside = if is_temporary { path.clone() } else { aside(&path) };
    match std::fs::rename(&path, &aside).and_then(|()| std::fs::remove_dir_all(&aside)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn aside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{TEMPORARY}{name}-{}", std::process::id()))
}

/// Removes a content that no folder links to; `false` if it has to stay.
fn remove_blob(path: &Path, may_go: impl Fn(&Metadata) -> bool) -> io::Result<bool> {
    let found = match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
        found => found?,
    };
    if found.nlink() > 1 || !may_go(&found) {
        return Ok(false);
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(true),
    }
}
