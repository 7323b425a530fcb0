//! The removal of a run directory and of the control groups that it names, by whoever is left of
//! the server and its spawner.
//!
//! Invariant: the file that identifies a run directory is removed last, so that a sweep recognises
//! what an interrupted removal has left.

use std::fs;
use std::io;
use std::path::Path;

use crate::{Error, Result, cgroup};

/// The file that names the parent of the process's control groups.
pub(crate) const CGROUP_FILE: &str = "cgroup";

/// Removes the run directory if no other lane of its spawner has control groups below `parent`: the
/// last lane to end finds none.
pub(crate) fn remove_if_last(path: &Path, parent: &str) -> Result<()> {
    let is_last =
        cgroup::detect().is_ok_and(|backend| cgroup::remove_if_empty(backend.as_ref(), parent));
    if is_last { remove_path(path) } else { Ok(()) }
}

/// Removes the control groups of one dead lane below `parent`.
///
/// # Errors
/// The error of the group that cannot be removed.
pub fn clean_lane(parent: &str, lane: u32) -> Result<()> {
    cgroup::remove_lane(cgroup::detect()?.as_ref(), parent, lane)
}

/// Removes the control groups below `parent` and the run directory.
///
/// # Errors
/// The error of the group or folder that cannot be removed.
pub fn remove(path: &Path, parent: &str) -> Result<()> {
    if let Ok(backend) = cgroup::detect() {
        cgroup::remove_tree(backend.as_ref(), parent)?;
    }
    remove_path(path)
}

fn remove_path(path: &Path) -> Result<()> {
    unless_gone(remove_folder(path)).map_err(at(path))
}

/// Removes the folder. The file that identifies it is removed last: a process killed during the
/// removal leaves a folder that a sweep recognises. Two lanes that end concurrently, or a lane and
/// the server, may both remove it.
fn remove_folder(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let inside = entry.path();
        match entry.file_type()?.is_dir() {
            true => unless_gone(fs::remove_dir_all(inside))?,
            false if entry.file_name() != CGROUP_FILE => unless_gone(fs::remove_file(inside))?,
            false => {}
        }
    }
    fs::remove_dir_all(path)
}

fn unless_gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Names the folder or file in an error.
pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::RunDir { path: path.to_owned(), source }
}
