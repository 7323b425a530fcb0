//! A set of wheels as one folder, with its manifest.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use snowmelt_types::{ByteSize, Digest};

use super::links::WheelConflict;
use crate::storage::{FileLock, write_synced};
use crate::wheels::public;
use crate::{Error, Requirement, Result, Wheel};

/// A package with an exact version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Pinned {
    /// The normalised name on the index.
    pub name: String,
    /// The exact version.
    pub version: String,
}

impl fmt::Display for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=={}", self.name, self.version)
    }
}

/// A folder of unpacked packages for `sys.path`. It is immutable, and it is not removed while this
/// value, or a clone of it, lives.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The digest of the environment's wheels: equal digests mean equal folders.
    pub digest: Digest,
    /// The folder in the layout of `site-packages`; readable by all users.
    pub path: PathBuf,
    /// All packages in the folder.
    pub packages: Vec<Pinned>,
    /// The unpacked wheels of these packages, by name. A subset of them can be made an environment:
    /// [`Installer::subset`](crate::Installer::subset).
    pub wheels: Vec<Wheel>,
    /// Files that two wheels contain with different content.
    pub conflicts: Vec<WheelConflict>,
    /// Modules of the requested distributions, without those of their dependencies: a zygote may
    /// import these (SOCK, section 4.2).
    pub modules: Vec<String>,
    /// The environment's size on disk if no other environment shared its wheels.
    pub size: ByteSize,
    pub(crate) _lease: Arc<FileLock>,
}

/// `environment.json`: the results of the environment's creation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) wheels: Vec<Wheel>,
    pub(crate) conflicts: Vec<WheelConflict>,
    /// Size on disk in bytes, including the wheels.
    pub(crate) bytes: u64,
    /// Size on disk in bytes, excluding the wheels.
    pub(crate) own: u64,
}

const MANIFEST: &str = "environment.json";
const SITE: &str = "site";

/// The folder of packages in an environment's folder.
pub(crate) fn site(environment: &Path) -> PathBuf {
    environment.join(SITE)
}

/// The digest of an environment of these wheels, independent of their order. It covers the Python
/// too, because the wheels' digests do.
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

    /// Reads the manifest of an environment. `None` if there is no environment, or it is
    /// incomplete.
    pub(crate) fn read(environment: &Path) -> Option<Self> {
        let manifest = serde_json::from_slice(&fs::read(environment.join(MANIFEST)).ok()?).ok()?;
        site(environment).is_dir().then_some(manifest)
    }

    /// The modules of the packages that these requirements name.
    pub(crate) fn requested_modules(&self, requirements: &[Requirement]) -> Vec<String> {
        let is_requested = |wheel: &&Wheel| requirements.iter().any(|one| one.name() == wheel.name);
        let wheels = self.wheels.iter().filter(is_requested);
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
