//! Small files and folders of the host, copied into a root instead of bind-mounted: each mount
//! costs time in every sandbox, a copy only once.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::builder::RootBuilder;
use crate::fault::{Fault, doing};

/// The limit of a copy per path, so that a root stays small.
const MAX_BYTES: u64 = 1 << 20;
const MAX_ENTRIES: usize = 2000;

/// The type of a path, without following links.
enum Entry {
    Folder,
    File,
    Link,
}

/// Copies `path` to the same path inside, or bind-mounts it if it is large or contains anything but
/// folders, files and links.
pub(super) fn or_bind(builder: &RootBuilder<'_>, path: &Path) -> Result<(), Fault> {
    let mut entries = Vec::new();
    let small = doing(format!("inspect {}", path.display()), survey(path, &mut entries))?;
    if !small {
        return builder.bind(path, path);
    }
    entries.iter().try_for_each(|(path, entry)| put(builder, path, entry))
}

fn put(builder: &RootBuilder<'_>, path: &Path, entry: &Entry) -> Result<(), Fault> {
    let read = || format!("read {}", path.display());
    match entry {
        Entry::Folder => builder.folder(path).map(drop),
        Entry::File => builder.file(path, &doing(read(), fs::read(path))?),
        Entry::Link => builder.link(path, &doing(read(), fs::read_link(path))?),
    }
}

/// Lists the entries to copy, folders before their contents. Returns false if they are too many or
/// too large, or other than folders, files and links.
fn survey(path: &Path, entries: &mut Vec<(PathBuf, Entry)>) -> io::Result<bool> {
    let mut waiting = vec![path.to_owned()];
    let mut bytes = 0;
    while let Some(path) = waiting.pop() {
        let found = fs::symlink_metadata(&path)?;
        let entry = match found.file_type() {
            kind if kind.is_dir() => Entry::Folder,
            kind if kind.is_file() => Entry::File,
            kind if kind.is_symlink() => Entry::Link,
            _ => return Ok(false),
        };
        match entry {
            Entry::Folder => {
                for inside in fs::read_dir(&path)? {
                    waiting.push(inside?.path());
                }
            }
            Entry::File => bytes += found.len(),
            Entry::Link => {}
        }
        entries.push((path, entry));
        if bytes > MAX_BYTES || entries.len() > MAX_ENTRIES {
            return Ok(false);
        }
    }
    Ok(true)
}
