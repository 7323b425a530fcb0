//! An unpacked wheel, and what is written beside it.
//!
//! Invariant: a folder under `wheels/` whose manifest can be read and whose files are all there is
//! one that was verified against its record. Anything else counts as absent and is made again.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use snowmelt_types::Digest;

use crate::files::{count_files, write_synced};
use crate::flock::FileLock;
use crate::{Error, Result};

/// One distribution at one version, unpacked and compiled for one kind of Python.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Wheel {
    /// Its name on the index, in normal form.
    pub name: String,
    /// Its exact version.
    pub version: String,
    /// Of the hashes that its lock allows and the kind of Python: equal digests are equal files.
    pub digest: Digest,
    /// Every name that `import` finds at the top level because of it, private ones too, sorted.
    pub modules: Vec<String>,
}

/// `wheel.json`: what was found out when the wheel was unpacked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WheelManifest {
    pub(crate) wheel: Wheel,
    /// How many files it has, byte code included.
    pub(crate) files: u64,
    /// What they and their folders take on disk.
    pub(crate) bytes: u64,
}

/// A wheel that stays while this value lives.
#[derive(Debug)]
pub(crate) struct HeldWheel {
    pub(crate) manifest: WheelManifest,
    pub(crate) site: PathBuf,
    pub(crate) _lease: FileLock,
}

const MANIFEST: &str = "wheel.json";
const SITE: &str = "site";

/// The folder of files inside of a wheel's own.
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

    /// None where there is no wheel.
    pub(crate) fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(folder.join(MANIFEST)).ok()?).ok()
    }

    /// None where there is no wheel, or where files of it are missing.
    pub(crate) fn read_whole(folder: &Path) -> Option<Self> {
        Self::read(folder).filter(|one| count_files(&site(folder)).ok() == Some(one.files))
    }
}
