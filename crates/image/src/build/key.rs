//! Detects whether a folder has changed since it was read last, from the kernel's metadata of its
//! files.
//!
//! A key covers the change time (ctime) of every inode, which users cannot set: a file that is
//! written, renamed, replaced or given other attributes gets a new one. Keys are compared on one
//! machine only; elsewhere the folder is read again.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::block::BlockDigest;
use crate::source::{PackOptions, names};

/// The kernel's clock for file times has a resolution of up to 10 ms: two changes within one step
/// have the same time.
const STEP: Duration = Duration::from_millis(20);

/// A fingerprint of the metadata of a folder and all its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FolderFingerprint {
    /// The digest of the metadata.
    pub digest: BlockDigest,
    /// The latest change time.
    newest: Duration,
}

impl FolderFingerprint {
    /// Computes the key of a folder that becomes a layer with these options.
    pub fn of(folder: &Path, options: &PackOptions) -> io::Result<Self> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(format!("{}\n", text_of(options)).as_bytes());
        let mut newest = Duration::ZERO;
        walk(folder, &mut hasher, &mut newest)?;
        Ok(Self { digest: BlockDigest(*hasher.finalize().as_bytes()), newest })
    }

    /// Computes the key of a folder whose content has an identity.
    pub fn named(identity: &str, options: &PackOptions) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(format!("{}\nnamed {identity}", text_of(options)).as_bytes());
        Self { digest: BlockDigest(*hasher.finalize().as_bytes()), newest: Duration::ZERO }
    }

    /// Returns whether any change after `began` would produce another key.
    pub fn is_settled(&self, began: SystemTime) -> bool {
        let began = began.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.newest + STEP < began
    }

    /// Returns the time until a change would produce another key. Zero if waiting is pointless,
    /// because change times lie in the future.
    pub fn settles_in(&self, now: SystemTime) -> Duration {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        // The compared time has to be in the past, not equal to now.
        let left = (self.newest + STEP + Duration::from_millis(1)).saturating_sub(now);
        if left > 2 * STEP { Duration::ZERO } else { left }
    }
}

/// The options as text. It is a part of every stored key: another text would make all of them
/// stale.
fn text_of(options: &PackOptions) -> String {
    let PackOptions { at, stamp, implied_folders } = options;
    format!("Shape {{ at: {at:?}, stamp: {stamp:?}, implied_folders: {implied_folders} }}")
}

fn walk(path: &Path, hasher: &mut blake3::Hasher, newest: &mut Duration) -> io::Result<()> {
    let metadata = path.symlink_metadata()?;
    for figure in [metadata.dev(), metadata.ino(), u64::from(metadata.mode()), metadata.size()] {
        hasher.update(&figure.to_le_bytes());
    }
    let seconds = metadata.ctime();
    let nanos = metadata.ctime_nsec();
    hasher.update(&seconds.to_le_bytes()).update(&nanos.to_le_bytes());
    let changed = Duration::new(u64::try_from(seconds).unwrap_or(0), nanos as u32);
    *newest = changed.max(*newest);
    if !metadata.is_dir() {
        return Ok(());
    }
    let names = names(path)?;
    hasher.update(&(names.len() as u64).to_le_bytes());
    for name in names {
        hasher.update(&(name.len() as u64).to_le_bytes()).update(name.as_bytes());
        walk(&path.join(name), hasher, newest)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn key(folder: &Path) -> BlockDigest {
        FolderFingerprint::of(folder, &PackOptions::default()).unwrap().digest
    }

    #[test]
    fn every_change_gives_another_key() {
        let folder = tempfile::tempdir().unwrap();
        let a = folder.path().join("a");
        let b = folder.path().join("b");
        let mut keys = vec![key(folder.path())];
        let changes: [&dyn Fn(); 6] = [
            &|| fs::write(&a, "one").unwrap(),
            &|| fs::write(&a, "two").unwrap(),
            &|| fs::set_permissions(&a, fs::Permissions::from_mode(0o600)).unwrap(),
            &|| fs::rename(&a, &b).unwrap(),
            &|| std::os::unix::fs::symlink("b", &a).unwrap(),
            &|| fs::remove_file(&b).unwrap(),
        ];
        for change in changes {
            // Waits for the next step of the kernel's clock for file times.
            std::thread::sleep(STEP);
            change();
            keys.push(key(folder.path()));
            assert_eq!(keys.last(), Some(&key(folder.path())), "and nothing else does");
        }
        let count = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), count);
    }

    #[test]
    fn a_folder_that_changed_just_now_is_not_settled() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "one").unwrap();
        let key = FolderFingerprint::of(folder.path(), &PackOptions::default()).unwrap();
        let changed = UNIX_EPOCH + key.newest;
        assert!(!key.is_settled(changed) && key.is_settled(changed + 2 * STEP));
        for now in [changed, changed + STEP, changed + 2 * STEP] {
            assert!(key.is_settled(now + key.settles_in(now)), "it is settled after the wait");
        }
        assert_eq!(key.settles_in(changed + 2 * STEP), Duration::ZERO);
        assert_eq!(key.settles_in(changed - 9 * STEP), Duration::ZERO, "of the future");
    }
}
