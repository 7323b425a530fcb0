//! Small files and folders of the host, copied into a root instead of bind-mounted: each mount
//! costs time in every sandbox, a copy only once.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::builder::RootBuilder;
use crate::fault::{StepFault, doing};

/// The limit of a copy per path, so that a root stays small.
const MAX_BYTES: u64 = 1 << 20;
const MAX_ENTRIES: usize = 2000;

/// The type of a path, without following links.
enum PathType {
    Folder,
    File,
    Link,
}

/// Copies `path` to the same path inside, or bind-mounts it if it is large or contains anything but
/// folders, files and links.
pub(super) fn or_bind(builder: &RootBuilder<'_>, path: &Path) -> Result<(), StepFault> {
    let mut entries = Vec::new();
    let small = doing(format!("inspect {}", path.display()), survey(path, &mut entries))?;
    if !small {
        return builder.bind(path, path);
    }
    entries.iter().try_for_each(|(path, entry)| put(builder, path, entry))
}

fn put(builder: &RootBuilder<'_>, path: &Path, entry: &PathType) -> Result<(), StepFault> {
    let read = || format!("read {}", path.display());
    match entry {
        PathType::Folder => builder.folder(path).map(drop),
        PathType::File => builder.file(path, &doing(read(), fs::read(path))?),
        PathType::Link => builder.link(path, &doing(read(), fs::read_link(path))?),
    }
}

/// Lists the entries to copy, folders before their contents. Returns false if they are too many or
/// too large, or other than folders, files and links.
fn survey(path: &Path, entries: &mut Vec<(PathBuf, PathType)>) -> io::Result<bool> {
    let mut waiting = vec![path.to_owned()];
    let mut bytes = 0;
    while let Some(path) = waiting.pop() {
        let found = fs::symlink_metadata(&path)?;
        let entry = match found.file_type() {
            kind if kind.is_dir() => PathType::Folder,
            kind if kind.is_file() => PathType::File,
            kind if kind.is_symlink() => PathType::Link,
            _ => return Ok(false),
        };
        match entry {
            PathType::Folder => {
                for inside in fs::read_dir(&path)? {
                    waiting.push(inside?.path());
                }
            }
            PathType::File => bytes += found.len(),
            PathType::Link => {}
        }
        entries.push((path, entry));
        if bytes > MAX_BYTES || entries.len() > MAX_ENTRIES {
            return Ok(false);
        }
    }
    Ok(true)
}
