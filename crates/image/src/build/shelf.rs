//! Unpacked packages of Debian by what was asked for, so that the same set is neither resolved nor
//! fetched again.
//!
//! Invariant: what is on the shelf is whole. Each builder holds the shelf; what one that was killed
//! left half-done is removed by the next that has it alone.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{Watch, download, unpack};
use crate::block::BlockDigest;
use crate::lock::{Lock, Share};
use crate::{Error, Result};

/// What begins the names of folders that are being filled.
const UNFINISHED: &str = ".tmp";

/// A folder of such packages.
pub struct DebianShelf {
    folder: PathBuf,
    _lock: Lock,
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct DebianPackages<'a> {
    /// Names, perhaps with an architecture and a version.
    pub names: &'a [String],
    /// Which base they are installed on: what another base has may be missing here.
    pub base: &'a str,
    /// Asks apt even if the same was asked for before.
    pub refresh: bool,
}

impl DebianShelf {
    /// Made if it is not there.
    pub fn open(folder: &Path) -> Result<Self> {
        let known = folder.join("known");
        fs::create_dir_all(&known).map_err(Error::io("make the folder", &known))?;
        let path = folder.join("lock");
        if let Some(_alone) = Lock::attempt(&path, Share::Exclusive)? {
            sweep(folder)?;
            sweep(&known)?;
        }
        Ok(Self { folder: folder.to_owned(), _lock: Lock::wait(&path, Share::Shared)? })
    }

    /// The folder of what was asked for before, if it was.
    pub fn known(&self, asked: &DebianPackages<'_>) -> Option<PathBuf> {
        let name = fs::read_to_string(self.note(asked)).ok().filter(|_| !asked.refresh)?;
        // Names of folders have no other letters: nothing leads out of here.
        let is_plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let folder = self.folder.join(name);
        (is_plain && folder.is_dir()).then_some(folder)
    }

    /// Has them unpacked in a folder; `installed` is the content of `/var/lib/dpkg/status` of the
    /// base.
    pub fn fetch(
        &self,
        asked: &DebianPackages<'_>,
        installed: Option<&[u8]>,
        watch: Watch<'_>,
    ) -> Result<PathBuf> {
        let scratch = tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(&self.folder);
        let scratch = scratch.map_err(Error::io("write in", &self.folder))?;
        let status = installed.map(|bytes| {
            let path = scratch.path().join("status");
            fs::write(&path, bytes).map_err(Error::io("write", &path)).map(|()| path)
        });
        let status = status.transpose()?;
        let archives = scratch.path().join("archives");
        let debs = download(asked.names, status.as_deref(), &archives, watch)?;
        let folder = unpack(&debs, &self.folder, watch)?;
        self.remember(asked, &folder).map_err(Error::io("write in", &self.folder))?;
        Ok(folder)
    }

    fn remember(&self, asked: &DebianPackages<'_>, folder: &Path) -> io::Result<()> {
        let known = self.folder.join("known");
        let mut note = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(&known)?;
        note.write_all(folder.file_name().unwrap_or_default().as_encoded_bytes())?;
        note.persist(self.note(asked))?;
        Ok(())
    }

    fn note(&self, asked: &DebianPackages<'_>) -> PathBuf {
        let mut names: Vec<&str> = asked.names.iter().map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        let text = format!("{}\n{}", asked.base, names.join("\n"));
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
    fn what_was_asked_for_is_known_by_its_names_and_its_base() {
        let scratch = tempfile::tempdir().unwrap();
        let shelf = DebianShelf::open(scratch.path()).unwrap();
        let names = ["curl".to_owned(), "python3".to_owned()];
        let asked = DebianPackages { names: &names, base: "sha256:1", refresh: false };
        assert_eq!(shelf.known(&asked), None);
        let folder = scratch.path().join("0a1b");
        fs::create_dir(&folder).unwrap();
        shelf.remember(&asked, &folder).unwrap();
        assert_eq!(shelf.known(&asked), Some(folder.clone()));
        let turned = [names[1].clone(), names[0].clone()];
        assert_eq!(shelf.known(&DebianPackages { names: &turned, ..asked }), Some(folder.clone()));
        for other in [
            DebianPackages { base: "sha256:2", ..asked },
            DebianPackages { names: &names[..1], ..asked },
            DebianPackages { refresh: true, ..asked },
        ] {
            assert_eq!(shelf.known(&other), None);
        }
        fs::remove_dir(&folder).unwrap();
        assert_eq!(shelf.known(&asked), None, "its folder is gone");
    }

    #[test]
    fn what_a_killed_builder_left_is_removed_once_nobody_builds() {
        let scratch = tempfile::tempdir().unwrap();
        let first = DebianShelf::open(scratch.path()).unwrap();
        let left = scratch.path().join(".tmpleft/archives");
        fs::create_dir_all(&left).unwrap();
        drop(DebianShelf::open(scratch.path()).unwrap());
        assert!(left.is_dir(), "another one builds");
        drop(first);
        DebianShelf::open(scratch.path()).unwrap();
        assert!(!left.exists());
    }
}
