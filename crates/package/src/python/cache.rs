//! Caches an interpreter's description for as long as its file does not change.

use std::env;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use snowmelt_types::Digest;

use super::Python;
use crate::storage::{make_folder, write_atomically};
use crate::{Error, Result};

/// The key of a description of an interpreter: all inputs of the description.
pub(super) struct PythonKey {
    digest: Digest,
}

#[derive(Serialize, Deserialize)]
struct CachedPython {
    /// The file stamp of the base interpreter, which may be replaced while the shim stays the same.
    stamp: String,
    python: Python,
}

impl PythonKey {
    pub(super) fn of(named: &Path) -> Result<Self> {
        let reason = |error| format!("{}: {error}", named.display());
        let stamp = stamp(named).map_err(|error| Error::PythonMissing { reason: reason(error) })?;
        let mut parts = vec!["python-2".to_owned(), named.display().to_string(), stamp];
        if is_script(named) {
            parts.extend(shim_inputs(named));
        }
        Ok(Self { digest: Digest::of_parts(parts) })
    }

    fn path(&self, store: &Path) -> PathBuf {
        store.join("python").join(format!("{}.json", self.digest.short()))
    }
}

/// The cached description, if the interpreter has not changed.
pub(super) fn read(store: &Path, key: &PythonKey) -> Option<Python> {
    let entry: CachedPython = serde_json::from_slice(&fs::read(key.path(store)).ok()?).ok()?;
    let unchanged = stamp(&entry.python.executable).ok()? == entry.stamp;
    let exist = entry.python.prefixes.iter().chain(&entry.python.stdlib).all(|path| path.is_dir());
    (unchanged && exist).then_some(entry.python)
}

/// Stores the description. A failure only costs time at the next start.
pub(super) fn write(store: &Path, key: &PythonKey, python: &Python) {
    if let Err(error) = try_write(store, key, python) {
        tracing::warn!(%error, "cannot cache the interpreter's description");
    }
}

fn try_write(store: &Path, key: &PythonKey, python: &Python) -> Result<()> {
    let path = key.path(store);
    let read = |error| Error::io("read", &python.executable)(error);
    let entry =
        CachedPython { stamp: stamp(&python.executable).map_err(read)?, python: python.clone() };
    fs::create_dir_all(store).map_err(Error::io("make the folder", store))?;
    make_folder(&store.join("python"), 0o700)?;
    let text =
        serde_json::to_vec(&entry).map_err(|error| Error::io("write", &path)(error.into()))?;
    write_atomically(&path, &text)
}

/// Returns a text that changes when the file at a path changes.
fn stamp(path: &Path) -> std::io::Result<String> {
    let found = fs::metadata(path)?;
    let time = (found.mtime(), found.mtime_nsec());
    Ok(format!("{}:{}:{}:{}.{}", found.dev(), found.ino(), found.size(), time.0, time.1))
}

fn is_script(path: &Path) -> bool {
    let mut start = [0; 2];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && &start == b"#!"
}

/// Returns the inputs of a pyenv shim, which selects the interpreter by `PYENV_VERSION`, a
/// `.python-version` in or above the current folder, or the global `version` file.
fn shim_inputs(shim: &Path) -> Vec<String> {
    let here = env::current_dir().unwrap_or_default();
    let local = here.ancestors().map(|folder| folder.join(".python-version"));
    let global = shim.parent().and_then(Path::parent).map(|root| root.join("version"));
    let variable = env::var("PYENV_VERSION").unwrap_or_default();
    let stamps = local
        .chain(global)
        .filter_map(|file| Some(format!("{} {}", file.display(), stamp(&file).ok()?)));
    std::iter::once(variable).chain(stamps).collect()
}
