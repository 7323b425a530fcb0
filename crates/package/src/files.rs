//! Files and folders of the store: modes, atomic writes, sizes.
//!
//! Modes are set, never left to the umask: sandboxes run as other users and must read what is
//! shared (0755, 0644), and nobody but us may write it.

use std::collections::HashSet;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

use crate::{Error, Result};

/// Makes a folder with this mode; one that exists keeps its own.
pub(crate) fn make_folder(path: &Path, mode: u32) -> Result<()> {
    match fs::DirBuilder::new().mode(mode).create(path) {
        Ok(()) => set_mode(path, mode),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(Error::io("make the folder", path)(error)),
    }
}

pub(crate) fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
        .map_err(Error::io("set the mode of", path))
}

/// Writes a file so that a reader, now or after a crash, sees all of it or nothing.
pub(crate) fn write_atomically(path: &Path, content: &[u8]) -> Result<()> {
    let failed = |error| Error::io("write", path)(error);
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    file.write_all(content).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    sync_folder(folder)
}

/// Writes a new file for everybody to read and flushes it.
pub(crate) fn write_synced(path: &Path, content: &[u8]) -> Result<()> {
    let failed = |error| Error::io("write", path)(error);
    let mut file = File::create(path).map_err(failed)?;
    file.set_permissions(Permissions::from_mode(0o644)).map_err(failed)?;
    file.write_all(content).map_err(failed)?;
    file.sync_all().map_err(failed)
}

/// Makes renames in a folder survive a power cut.
pub(crate) fn sync_folder(path: &Path) -> Result<()> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(Error::io("flush", path))
}

/// Flushes everything under a folder. One call for its whole file system is far cheaper than one
/// for each of some thousand small files.
pub(crate) fn sync_file_system(path: &Path) -> Result<()> {
    let folder = File::open(path).map_err(Error::io("open", path))?;
    rustix::fs::syncfs(folder).map_err(|errno| Error::io("flush", path)(errno.into()))
}

/// Lets everybody read and nobody but the owner write; refuses what is no file, folder or link.
pub(crate) fn share_tree(root: &Path) -> Result<()> {
    walk(root, &mut |path, metadata| {
        let kind = metadata.file_type();
        let executable = metadata.mode() & 0o100 != 0;
        let mode = if kind.is_dir() || executable { 0o755 } else { 0o644 };
        match () {
            () if kind.is_symlink() => Ok(()),
            () if !kind.is_dir() && !kind.is_file() => {
                let source = io::Error::other("it is neither a file nor a folder");
                Err(Error::io("share", path)(source))
            }
            () if metadata.mode() & 0o7777 == mode => Ok(()),
            () => set_mode(path, mode),
        }
    })
}

/// How many there are in a tree that are no folders. Does not look at them, so it is quick.
pub(crate) fn count_files(folder: &Path) -> Result<u64> {
    let failed = |error| Error::io("read", folder)(error);
    let mut count = 0;
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let is_folder = entry.file_type().map_err(failed)?.is_dir();
        count += if is_folder { count_files(&entry.path())? } else { 1 };
    }
    Ok(count)
}

/// Bytes on disk of some trees, each inode once: packages are hard-linked with the cache.
pub(crate) fn bytes_on_disk<P: AsRef<Path>>(roots: impl IntoIterator<Item = P>) -> u64 {
    let mut seen = HashSet::new();
    let mut bytes = 0;
    for root in roots {
        // What vanishes while it is counted needs no space.
        let _ = walk(root.as_ref(), &mut |_, metadata| {
            if seen.insert((metadata.dev(), metadata.ino())) {
                bytes += metadata.blocks() * 512;
            }
            Ok(())
        });
    }
    bytes
}

/// Visits a tree, folders before what is in them, without following links.
fn walk(path: &Path, visit: &mut impl FnMut(&Path, &Metadata) -> Result<()>) -> Result<()> {
    let metadata = fs::symlink_metadata(path).map_err(Error::io("read", path))?;
    visit(path, &metadata)?;
    if !metadata.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(path).map_err(Error::io("read", path))? {
        walk(&entry.map_err(Error::io("read", path))?.path(), visit)?;
    }
    Ok(())
}

/// Removes a tree; what is not there is removed already.
pub(crate) fn remove_tree(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hard_link_is_counted_once() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), vec![1; 100_000]).unwrap();
        let one = bytes_on_disk([folder.path()]);
        fs::hard_link(folder.path().join("a"), folder.path().join("b")).unwrap();
        assert_eq!(bytes_on_disk([folder.path()]), one);
        assert!(one >= 100_000);
    }

    #[test]
    fn shares_for_reading_only() {
        let folder = tempfile::tempdir().unwrap();
        let (program, text) = (folder.path().join("program"), folder.path().join("text"));
        fs::write(&program, "").unwrap();
        fs::write(&text, "").unwrap();
        set_mode(&program, 0o4777).unwrap();
        set_mode(&text, 0o600).unwrap();
        share_tree(folder.path()).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!([mode(folder.path()), mode(&program), mode(&text)], [0o755, 0o755, 0o644]);
    }
}
