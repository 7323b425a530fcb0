//! A cache of unpacked Debian packages by their names, so that the same set is neither resolved nor
//! fetched again.
//!
//! Invariant: entries are complete. Each builder holds a shared lock on the cache; the next builder
//! that can lock it exclusively removes incomplete entries of builders that were killed.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{BuildProgress, download, unpack};
use crate::block::BlockDigest;
use crate::lock::{self, Lock, LockMode};
use crate::{Error, Result};

/// The name prefix of folders that are being filled.
const UNFINISHED: &str = ".tmp";

/// A folder of unpacked Debian packages.
pub struct DebianCache {
    folder: PathBuf,
    _lock: Lock,
}

/// A set of packages.
#[derive(Clone, Copy, Debug)]
pub struct DebianPackages<'a> {
    /// The names of the packages, optionally with an architecture and a version.
    pub names: &'a [String],
    /// The base's identity: the packages that have to be added depend on what the base contains.
    pub base: &'a str,
    /// True if the essential packages are needed too, because there is no base.
    pub essential: bool,
    /// True if apt is to run even if the set is in the cache.
    pub refresh: bool,
}

impl DebianCache {
    /// Opens the cache; creates it if it does not exist.
    pub fn open(folder: &Path) -> Result<Self> {
        let known = folder.join("known");
        fs::create_dir_all(&known).map_err(Error::io("make the folder", &known))?;
        let path = folder.join("lock");
        if let Some(_alone) = lock::attempt(&path, LockMode::Exclusive)? {
            sweep(folder)?;
            sweep(&known)?;
        }
        Ok(Self { folder: folder.to_owned(), _lock: lock::wait(&path, LockMode::Shared)? })
    }

    /// Returns the folder of a set, if it is cached.
    pub fn get(&self, set: &DebianPackages<'_>) -> Option<PathBuf> {
        let name = fs::read_to_string(self.entry(set)).ok().filter(|_| !set.refresh)?;
        // Prevents names that lead out of the cache.
        let is_plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let folder = self.folder.join(name);
        (is_plain && folder.is_dir()).then_some(folder)
    }

    /// Downloads and unpacks a set; returns its folder. `installed` is the content of
    /// `/var/lib/dpkg/status` of the base.
    pub fn fetch(
        &self,
        set: &DebianPackages<'_>,
        installed: Option<&[u8]>,
        progress: BuildProgress<'_>,
    ) -> Result<PathBuf> {
        let scratch = tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(&self.folder);
        let scratch = scratch.map_err(Error::io("write in", &self.folder))?;
        let status = installed.map(|bytes| {
            let path = scratch.path().join("status");
            fs::write(&path, bytes).map_err(Error::io("write", &path)).map(|()| path)
        });
        let status = status.transpose()?;
        let archives = scratch.path().join("archives");
        let debs = download(set.names, status.as_deref(), set.essential, &archives, progress)?;
        let folder = unpack(&debs, &self.folder, progress)?;
        self.store(set, &folder).map_err(Error::io("write in", &self.folder))?;
        Ok(folder)
    }

    fn store(&self, set: &DebianPackages<'_>, folder: &Path) -> io::Result<()> {
        let known = self.folder.join("known");
        let mut entry = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(&known)?;
        entry.write_all(folder.file_name().unwrap_or_default().as_encoded_bytes())?;
        entry.persist(self.entry(set))?;
        Ok(())
    }

    fn entry(&self, set: &DebianPackages<'_>) -> PathBuf {
        let mut names: Vec<&str> = set.names.iter().map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        // Those of an earlier version are unpacked in another manner.
        let text = format!("2 {}\n{}\n{}", set.essential, set.base, names.join("\n"));
        self.folder.join("known").join(BlockDigest::of(text.as_bytes()).to_string())
    }
}

fn sweep(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(Error::io("read", folder))? {
        let entry = entry.map_err(Error::io("read", folder))?;
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            let path = entry.path();
            let removed = match path.is_dir() {
                true => fs::remove_dir_all(&path),
                false => fs::remove_file(&path),
            };
            removed.map_err(Error::io("remove", &path))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_cached_by_its_names_and_its_base() {
        let scratch = tempfile::tempdir().unwrap();
        let cache = DebianCache::open(scratch.path()).unwrap();
        let names = ["curl".to_owned(), "python3".to_owned()];
        let set =
            DebianPackages { names: &names, base: "sha256:1", essential: false, refresh: false };
        assert_eq!(cache.get(&set), None);
        let folder = scratch.path().join("0a1b");
        fs::create_dir(&folder).unwrap();
        cache.store(&set, &folder).unwrap();
        assert_eq!(cache.get(&set), Some(folder.clone()));
        let reversed = [names[1].clone(), names[0].clone()];
        assert_eq!(cache.get(&DebianPackages { names: &reversed, ..set }), Some(folder.clone()));
        for other in [
            DebianPackages { base: "sha256:2", ..set },
            DebianPackages { essential: true, ..set },
            DebianPackages { names: &names[..1], ..set },
            DebianPackages { refresh: true, ..set },
        ] {
            assert_eq!(cache.get(&other), None);
        }
        fs::remove_dir(&folder).unwrap();
        assert_eq!(cache.get(&set), None, "its folder is gone");
    }

    #[test]
    fn incomplete_entries_are_removed_when_no_builder_is_active() {
        let scratch = tempfile::tempdir().unwrap();
        let first = DebianCache::open(scratch.path()).unwrap();
        let left = scratch.path().join(".tmpleft/archives");
        fs::create_dir_all(&left).unwrap();
        drop(DebianCache::open(scratch.path()).unwrap());
        assert!(left.is_dir(), "another builder is active");
        drop(first);
        DebianCache::open(scratch.path()).unwrap();
        assert!(!left.exists());
    }
}
