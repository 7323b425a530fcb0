//! The folders of a lab: the run folder with files that are removed with the lab, and the state
//! folder with the persistent data of its hosts.
//!
//! Invariant: the plan is written last, so a lab without a plan is incomplete or being removed, and
//! the holder of the lock may remove it.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use snowmelt_kernel::lock::{Lock, LockMode};
use snowmelt_types::HostName;

use crate::{Error, Result};

/// The platform's folders, which contain those of labs.
#[derive(Clone, Debug)]
pub struct Roots {
    /// The folder for files that are removed with the lab.
    pub run: PathBuf,
    /// The folder for the data of the lab's hosts.
    pub state: PathBuf,
}

const LABS: &str = "labs";
const PLAN: &str = "lab.json";
const NAMESPACES: &str = "net";

/// The folders of one lab.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    pub run: PathBuf,
    pub state: PathBuf,
}

impl Folder {
    pub fn of(roots: &Roots, name: &HostName) -> Self {
        let below = |root: &Path| root.join(LABS).join(name.as_str());
        Self { run: below(&roots.run), state: below(&roots.state) }
    }

    /// Whether any part of the folders exists.
    pub fn exists(&self) -> bool {
        self.run.exists() || self.state.exists()
    }

    pub fn create(&self) -> Result<()> {
        make(&self.run.join(NAMESPACES), 0o711)?;
        make(&self.state, 0o711)
    }

    /// The file on which a namespace is mounted.
    pub fn namespace(&self, name: &str) -> PathBuf {
        self.run.join(NAMESPACES).join(name)
    }

    /// The files of all namespaces of the lab.
    pub fn namespaces(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.run.join(NAMESPACES)).into_iter().flatten();
        entries.flatten().map(|entry| entry.path()).collect()
    }

    /// The socket of the lab's control.
    pub fn socket(&self) -> PathBuf {
        self.run.join("snowmelt.sock")
    }

    /// The program with which control starts and ends hosts of its lab.
    pub fn provider(&self) -> PathBuf {
        self.run.join("provider")
    }

    pub fn write_provider(&self, text: &str) -> Result<()> {
        let path = self.provider();
        let write = || -> io::Result<()> {
            let mut file = File::options().write(true).create_new(true).mode(0o700).open(&path)?;
            io::Write::write_all(&mut file, text.as_bytes())
        };
        write().map_err(Error::folder(&path))
    }

    /// Reads the plan of a complete lab; `None` before the lab is complete.
    pub fn plan<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        read(&self.run.join(PLAN))
    }

    pub fn write_plan(&self, plan: &impl Serialize) -> Result<()> {
        write(&self.run.join(PLAN), plan)
    }

    /// Marks the lab as incomplete.
    pub fn remove_plan(&self) -> Result<()> {
        let path = self.run.join(PLAN);
        unless_gone(fs::remove_file(&path)).map_err(Error::folder(&path))
    }

    /// Removes the lab's folders, and the folders of all labs if this was the last one.
    pub fn remove(&self) -> Result<()> {
        for path in [&self.run, &self.state] {
            unless_gone(fs::remove_dir_all(path)).map_err(Error::folder(path))?;
            if let Some(labs) = path.parent() {
                // It fails if the folder contains other labs.
                drop(fs::remove_dir(labs));
            }
        }
        Ok(())
    }
}

/// Takes the lock that is held while labs are made, changed and ended.
pub(crate) fn lock(roots: &Roots) -> Result<Lock> {
    make(&roots.run, 0o711)?;
    // Outside the labs' folder, which is removed with the last lab.
    let path = roots.run.join("labs.lock");
    let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = file.map_err(Error::folder(&path))?;
    Lock::wait(file, LockMode::Exclusive).map_err(Error::folder(&path))
}

/// The names of labs that exist, completely or not.
pub(crate) fn names(roots: &Roots) -> Vec<HostName> {
    let entries = fs::read_dir(roots.run.join(LABS)).into_iter().flatten().flatten();
    let mut names: Vec<HostName> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    names.sort();
    names
}

/// Creates a folder and its parents.
pub(crate) fn make(path: &Path, mode: u32) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(mode).create(path);
    made.map_err(Error::folder(path))
}

/// Reads a value from a file; `None` if the file does not exist.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(Error::folder(path))?,
    };
    serde_json::from_slice(&text).map(Some).map_err(|error| Error::folder(path)(error.into()))
}

/// Writes a value atomically: a reader gets the old one or the new one.
pub(crate) fn write(path: &Path, value: &impl Serialize) -> Result<()> {
    let fresh = path.with_extension("new");
    let write = || {
        fs::write(&fresh, serde_json::to_vec(value)?)?;
        fs::rename(&fresh, path)
    };
    write().map_err(Error::folder(path))
}

fn unless_gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
