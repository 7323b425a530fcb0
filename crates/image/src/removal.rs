//! The removal of files that nothing references, and the count of what was removed.
//!
//! Invariant: a file that is gone already is no error, because collectors and writers of other
//! processes may remove it too.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// The result of a garbage collection: what was removed, or would be with `dry`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// The number of removed blobs.
    pub blobs: u64,
    /// Bytes of the removed blobs and of half-written files.
    pub bytes: u64,
}

/// Names, paths and sizes of the files of a folder; empty if the folder does not exist.
pub(crate) fn files(folder: &Path) -> Result<Vec<(String, PathBuf, u64)>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(Error::io("read", folder))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(Error::io("read", folder))?;
        let bytes = entry.metadata().map_or(0, |found| found.len());
        found.push((entry.file_name().to_string_lossy().into_owned(), entry.path(), bytes));
    }
    Ok(found)
}

/// Removes a file that may be gone already; with `dry`, leaves it.
pub(crate) fn remove(path: &Path, dry: bool) -> Result<()> {
    match if dry { Ok(()) } else { fs::remove_file(path) } {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}
