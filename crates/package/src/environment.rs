//! An unpacked set of packages, and what is written beside it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use snowmelt_types::{ByteSize, Digest};

use crate::flock::FileLock;
use crate::{Error, Requirement, Result};

/// One package at one version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Pinned {
    /// Its name on the index, in normal form.
    pub name: String,
    /// Its exact version.
    pub version: String,
}

impl fmt::Display for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=={}", self.name, self.version)
    }
}

/// A folder of unpacked packages, to be put on `sys.path`. It does not change any more, and it is
/// not removed while this value, or a clone of it, lives.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Of the lock, the Python and the platform: equal digests are equal folders.
    pub digest: Digest,
    /// The folder, as `site-packages` is laid out; readable by everybody.
    pub path: PathBuf,
    /// Everything in it.
    pub packages: Vec<Pinned>,
    /// Modules of the distributions that were asked for, not of those that these need: what a
    /// zygote may import (SOCK 4.2).
    pub modules: Vec<String>,
    /// Its size on disk.
    pub size: ByteSize,
    pub(crate) _lease: Arc<FileLock>,
}

/// `environment.json`: what was found out when the environment was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) packages: Vec<Pinned>,
    /// Distribution to its top-level modules.
    pub(crate) modules: BTreeMap<String, Vec<String>>,
    pub(crate) bytes: u64,
}

const MANIFEST: &str = "environment.json";
const SITE: &str = "site";

/// The folder of packages inside of an environment's own.
pub(crate) fn site(environment: &Path) -> PathBuf {
    environment.join(SITE)
}

impl Manifest {
    pub(crate) fn write(&self, environment: &Path) -> Result<()> {
        let path = environment.join(MANIFEST);
        let text =
            serde_json::to_vec_pretty(self).map_err(|e| Error::io("write", &path)(e.into()))?;
        fs::write(&path, text).map_err(Error::io("write", &path))
    }

    /// None where there is no environment, or not a whole one.
    pub(crate) fn read(environment: &Path) -> Option<Self> {
        let manifest = serde_json::from_slice(&fs::read(environment.join(MANIFEST)).ok()?).ok()?;
        site(environment).is_dir().then_some(manifest)
    }

    /// The environment, for somebody who asked for these requirements.
    pub(crate) fn environment(
        self,
        digest: Digest,
        folder: &Path,
        requirements: &[Requirement],
        lease: FileLock,
    ) -> Environment {
        let asked = requirements.iter().filter_map(|one| self.modules.get(one.name()));
        let mut modules: Vec<String> = asked.flatten().cloned().collect();
        modules.sort();
        modules.dedup();
        Environment {
            digest,
            path: site(folder),
            packages: self.packages,
            modules,
            size: ByteSize(self.bytes),
            _lease: Arc::new(lease),
        }
    }
}
