//! Profiles on this host, one file per image, merged over its starts.
//!
//! Invariant: a file is replaced atomically, by one process at a time.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{ProfileKeys, PublicKey, Signed, StartProfile};
use crate::block::OciDigest;
use crate::lock::{self, LockMode};
use crate::{Error, Result};

/// A folder of profiles.
#[derive(Clone, Debug)]
pub struct ProfileStore {
    folder: PathBuf,
}

/// The content of a file: the signed bytes as text.
#[derive(Serialize, Deserialize)]
struct StoredProfile {
    key: PublicKey,
    signature: Vec<u8>,
    profile: String,
}

impl ProfileStore {
    /// Opens the folder; creates it if it does not exist.
    pub fn open(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).map_err(Error::io("make the folder", folder))?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// Returns the profile of an image. A profile that cannot be used is ignored with a warning.
    pub fn get(&self, keys: &ProfileKeys, image: &OciDigest) -> Option<StartProfile> {
        let opened = self.read(image).and_then(|signed| signed.open(keys, image));
        match opened {
            Ok(profile) => Some(profile),
            Err(Error::Missing { .. }) => None,
            Err(error) => {
                tracing::warn!(%image, %error, "ignoring a start profile");
                None
            }
        }
    }

    /// Reads the stored profile, for publication.
    pub fn read(&self, image: &OciDigest) -> Result<Signed> {
        let path = self.path(image);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::missing(format!("a start profile of {image}")));
            }
            read => read.map_err(Error::io("read", &path))?,
        };
        let stored: StoredProfile = serde_json::from_slice(&bytes)
            .map_err(|error| Error::refused(path.display().to_string(), error.to_string()))?;
        let StoredProfile { key, signature, profile } = stored;
        Ok(Signed { body: profile.into_bytes(), key, signature })
    }

    /// Merges the blocks of a start into the stored profile; returns whether any was new.
    pub fn merge(
        &self,
        keys: &ProfileKeys,
        image: &OciDigest,
        start: &StartProfile,
    ) -> Result<bool> {
        let _lock = lock::wait(&self.folder.join("lock"), LockMode::Exclusive)?;
        let before = self.get(keys, image).unwrap_or_default();
        let mut merged = before.clone();
        merged.merge(start);
        if merged == before {
            return Ok(false);
        }
        let Signed { body, key, signature } = Signed::new(keys, image, &merged)?;
        let profile = String::from_utf8_lossy(&body).into_owned();
        self.write(&self.path(image), &StoredProfile { key, signature, profile }).map(|()| true)
    }

    fn write(&self, path: &Path, stored: &StoredProfile) -> Result<()> {
        let bytes = serde_json::to_vec(stored)
            .map_err(|error| Error::refused("a start profile", error.to_string()))?;
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)
            .map_err(Error::io("write in", &self.folder))?;
        file.write_all(&bytes).map_err(Error::io("write", path))?;
        file.persist(path).map_err(|failed| Error::io("write", path)(failed.error))?;
        Ok(())
    }

    fn path(&self, image: &OciDigest) -> PathBuf {
        self.folder.join(format!("{}.json", image.hex()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::BlockDigest;

    #[test]
    fn merges_starts_and_ignores_files_of_untrusted_keys() {
        let scratch = tempfile::tempdir().unwrap();
        let keys = ProfileKeys::open(&scratch.path().join("key"), Vec::new()).unwrap();
        let store = ProfileStore::open(&scratch.path().join("profiles")).unwrap();
        let image = OciDigest::of(b"image");
        let blob = BlockDigest::of(b"blob");
        let start = |blocks: &[u32]| StartProfile {
            blocks: blocks.iter().map(|block| (blob, *block)).collect(),
        };
        assert_eq!(store.get(&keys, &image), None);
        assert!(store.merge(&keys, &image, &start(&[3, 1])).unwrap());
        assert!(!store.merge(&keys, &image, &start(&[1])).unwrap(), "nothing new");
        assert!(store.merge(&keys, &image, &start(&[2, 3])).unwrap());
        assert_eq!(store.get(&keys, &image), Some(start(&[3, 1, 2])));

        let others = ProfileKeys::open(&scratch.path().join("others"), Vec::new()).unwrap();
        assert_eq!(store.get(&others, &image), None);
        let path = store.path(&image);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 9]).unwrap();
        assert_eq!(store.get(&keys, &image), None);
        assert!(store.merge(&keys, &image, &start(&[9])).unwrap(), "and is replaced");
        assert_eq!(store.get(&keys, &image), Some(start(&[9])));
    }
}
