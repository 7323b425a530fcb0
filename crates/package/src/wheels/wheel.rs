//! Unpacked wheels and their manifests.
//!
//! Invariant: a folder under `wheels/` with a readable manifest and all of its files was verified
//! against its RECORD. Any other folder counts as missing and is replaced.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use snowmelt_types::Digest;

use crate::storage::{FileLock, count_files, write_synced};
use crate::{Error, Result};

/// A distribution with an exact version, unpacked and compiled for one kind of Python.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Wheel {
    /// The normalised name on the index.
    pub name: String,
    /// The exact version.
    pub version: String,
    /// The digest of the locked hashes and the kind of Python: equal digests mean equal files.
    pub digest: Digest,
    /// All top-level names that can be imported, including private ones, sorted.
    pub modules: Vec<String>,
}

/// `wheel.json`: the results of unpacking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WheelManifest {
    pub(crate) wheel: Wheel,
    /// The number of files, including byte code.
    pub(crate) files: u64,
    /// The size on disk of the files and their folders, in bytes.
    pub(crate) bytes: u64,
}

/// A wheel that is not removed while this value lives.
#[derive(Debug)]
pub(crate) struct LockedWheel {
    pub(crate) manifest: WheelManifest,
    pub(crate) site: PathBuf,
    pub(crate) _lease: FileLock,
}

const MANIFEST: &str = "wheel.json";
const SITE: &str = "site";

/// The folder of files in a wheel's folder.
pub(crate) fn site(wheel: &Path) -> PathBuf {
    wheel.join(SITE)
}

impl WheelManifest {
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(MANIFEST);
        let text =
            serde_json::to_vec_pretty(self).map_err(|e| Error::io("write", &path)(e.into()))?;
        write_synced(&path, &text)
    }

    /// `None` if the wheel does not exist.
    pub(crate) fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(folder.join(MANIFEST)).ok()?).ok()
    }

    /// `None` if the wheel does not exist or files of it are missing.
    pub(crate) fn read_whole(folder: &Path) -> Option<Self> {
        Self::read(folder).filter(|one| count_files(&site(folder)).ok() == Some(one.files))
    }
}
