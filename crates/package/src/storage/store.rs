//! The folders of the store, and which of them can be relied on.
//!
//! | folder | holds | trusted |
//! |---|---|---|
//! | `wheels/<digest>/` | `site/`, `wheel.json` | yes: published by a rename |
//! | `environments/<digest>/` | `site/` of links to wheels, `environment.json` | yes: published by a rename |
//! | `memo/<key>.json` | cached locks of requirements | if it parses and is recent |
//! | `locks/` | lock files; those of wheels and environments record the last use | |
//! | `cache/` | uv's cache, hard-linked into wheels | verified at each use |
//! | `tmp/` | installations in progress | never; removed after their process has exited |

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use snowmelt_types::Digest;

use super::files::make_folder;
use super::workspace::Workspace;
use crate::{Error, Result};

/// The paths of a store.
#[derive(Clone, Debug)]
pub(crate) struct PackageStore {
    root: PathBuf,
}

impl PackageStore {
    /// Creates missing folders and removes leftovers of earlier processes.
    pub(crate) fn open(root: PathBuf, trusted: Option<u32>) -> Result<Self> {
        fs::create_dir_all(&root).map_err(Error::io("make the folder", &root))?;
        let root = fs::canonicalize(&root).map_err(Error::io("find", &root))?;
        refuse_foreign(&root, trusted)?;
        let store = Self { root };
        make_folder(&store.wheels(), 0o755)?;
        make_folder(&store.environments(), 0o755)?;
        for private in ["memo", "locks", "tmp"] {
            make_folder(&store.root.join(private), 0o700)?;
        }
        Workspace::sweep(&store.tmp())?;
        Ok(store)
    }

    pub(crate) fn wheels(&self) -> PathBuf {
        self.root.join("wheels")
    }

    pub(crate) fn wheel(&self, digest: &Digest) -> PathBuf {
        self.wheels().join(digest.as_str())
    }

    /// The path of the lock that is held shared while the wheel is linked, exclusively while it is
    /// created or removed.
    pub(crate) fn wheel_lock(&self, digest: &str) -> PathBuf {
        self.root.join("locks").join(format!("{digest}.wheel"))
    }

    pub(crate) fn environments(&self) -> PathBuf {
        self.root.join("environments")
    }

    pub(crate) fn environment(&self, digest: &Digest) -> PathBuf {
        self.environments().join(digest.as_str())
    }

    /// The path of the lock that is held shared while the environment is used, exclusively while it
    /// is created or removed.
    pub(crate) fn environment_lock(&self, digest: &str) -> PathBuf {
        self.root.join("locks").join(format!("{digest}.environment"))
    }

    pub(crate) fn memo(&self, key: &Digest) -> PathBuf {
        self.root.join("memo").join(format!("{key}.json"))
    }

    pub(crate) fn memo_lock(&self, key: &Digest) -> PathBuf {
        self.root.join("locks").join(format!("{key}.memo"))
    }

    pub(crate) fn cache(&self) -> PathBuf {
        self.root.join("cache")
    }

    /// The path of the lock that is held shared while uv runs, exclusively while the cache is
    /// removed.
    pub(crate) fn cache_lock(&self) -> PathBuf {
        self.root.join("locks").join("cache")
    }

    fn tmp(&self) -> PathBuf {
        self.root.join("tmp")
    }

    pub(crate) fn workspace(&self) -> Result<Workspace> {
        Workspace::new(&self.tmp())
    }
}

/// The number of interrupted installations in a store that have not been removed yet; the next
/// [`crate::Installer`] removes them.
pub fn interrupted(store: &Path) -> usize {
    Workspace::abandoned(&store.join("tmp"))
}

/// Refuses a store that other users can write to: such a user could inject code that runs in all
/// sandboxes. Root, this user and `trusted` are none of them.
fn refuse_foreign(root: &Path, trusted: Option<u32>) -> Result<()> {
    let metadata = fs::metadata(root).map_err(Error::io("read", root))?;
    let refuse = |reason: String| Err(Error::Store { path: root.to_owned(), reason });
    if !metadata.is_dir() {
        let source = io::Error::from(io::ErrorKind::NotADirectory);
        return Err(Error::io("use", root)(source));
    }
    let user = rustix::process::geteuid().as_raw();
    if ![Some(0), Some(user), trusted].contains(&Some(metadata.uid())) {
        return refuse(format!("it belongs to user {}, not to user {user}", metadata.uid()));
    }
    if metadata.mode() & 0o022 != 0 {
        return refuse(format!("its mode {:o} lets others write", metadata.mode() & 0o7777));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::files::set_mode;

    #[test]
    fn refuses_a_store_that_others_can_write() {
        let folder = tempfile::tempdir().unwrap();
        set_mode(folder.path(), 0o777).unwrap();
        let refused = PackageStore::open(folder.path().to_owned(), None).unwrap_err();
        assert!(matches!(refused, Error::Store { .. }), "{refused}");
    }

    #[test]
    fn a_store_belongs_to_this_user_to_root_or_to_one_who_is_trusted() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(folder.path(), Some(4321), None).unwrap();
        let open = |trusted| PackageStore::open(folder.path().to_owned(), trusted);
        open(Some(4321)).unwrap();
        for trusted in [None, Some(4322)] {
            assert!(matches!(open(trusted), Err(Error::Store { .. })), "{trusted:?}");
        }
    }
}
