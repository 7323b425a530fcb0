//! A set of wheels as one folder, and what is written beside it.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use snowmelt_types::{ByteSize, Digest};

use crate::files::write_synced;
use crate::flock::FileLock;
use crate::link::Conflict;
use crate::record::public;
use crate::{Error, Requirement, Result, Wheel};

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
    /// Of its wheels: equal digests are equal folders.
    pub digest: Digest,
    /// The folder, as `site-packages` is laid out; readable by everybody.
    pub path: PathBuf,
    /// Everything in it.
    pub packages: Vec<Pinned>,
    /// The same as the unpacked wheels that it is put together from, by name. Some of them can be
    /// had alone: [`Installer::subset`](crate::Installer::subset).
    pub wheels: Vec<Wheel>,
    /// Files that two wheels bring with different content.
    pub conflicts: Vec<Conflict>,
    /// Modules of the distributions that were asked for, not of those that these need: what a
    /// zygote may import (SOCK 4.2).
    pub modules: Vec<String>,
    /// Its size on disk if nothing else shared its wheels.
    pub size: ByteSize,
    pub(crate) _lease: Arc<FileLock>,
}

/// `environment.json`: what was found out when the environment was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) wheels: Vec<Wheel>,
    pub(crate) conflicts: Vec<Conflict>,
    /// On disk, with the wheels.
    pub(crate) bytes: u64,
    /// On disk, without the wheels.
    pub(crate) own: u64,
}

const MANIFEST: &str = "environment.json";
const SITE: &str = "site";

/// The folder of packages inside of an environment's own.
pub(crate) fn site(environment: &Path) -> PathBuf {
    environment.join(SITE)
}

/// Names the environment of some wheels, in any order. A wheel's digest names its Python too.
pub(crate) fn digest_of<'a>(wheels: impl IntoIterator<Item = &'a Digest>) -> Digest {
    let sorted: BTreeSet<&str> = wheels.into_iter().map(Digest::as_str).collect();
    Digest::of_parts(["environment-2"].into_iter().chain(sorted))
}

impl Manifest {
    pub(crate) fn write(&self, environment: &Path) -> Result<()> {
        let path = environment.join(MANIFEST);
        let text =
            serde_json::to_vec_pretty(self).map_err(|e| Error::io("write", &path)(e.into()))?;
        write_synced(&path, &text)
    }

    /// None where there is no environment, or not a whole one.
    pub(crate) fn read(environment: &Path) -> Option<Self> {
        let manifest = serde_json::from_slice(&fs::read(environment.join(MANIFEST)).ok()?).ok()?;
        site(environment).is_dir().then_some(manifest)
    }

    /// The modules of what these requirements name.
    pub(crate) fn asked(&self, requirements: &[Requirement]) -> Vec<String> {
        let asked = |wheel: &&Wheel| requirements.iter().any(|one| one.name() == wheel.name);
        let wheels = self.wheels.iter().filter(asked);
        wheels
            .flat_map(|wheel| public(&wheel.modules))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }

    pub(crate) fn environment(
        self,
        digest: Digest,
        folder: &Path,
        modules: Vec<String>,
        lease: FileLock,
    ) -> Environment {
        let pinned =
            |wheel: &Wheel| Pinned { name: wheel.name.clone(), version: wheel.version.clone() };
        Environment {
            digest,
            path: site(folder),
            packages: self.wheels.iter().map(pinned).collect(),
            wheels: self.wheels,
            conflicts: self.conflicts,
            modules,
            size: ByteSize(self.bytes),
            _lease: Arc::new(lease),
        }
    }
}
