//! Files and folders of the store: modes, atomic writes, sizes.
//!
//! Modes are set explicitly, independent of the umask: sandboxes run as other users and must be
//! able to read shared files (0755, 0644), and only the platform's user may write them.

use std::collections::HashSet;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

use crate::{Error, Result};

/// Creates a folder with this mode; the mode of an existing folder is not changed.
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

/// Writes a file atomically: a reader, now or after a crash, sees the whole content or none.
pub(crate) fn write_atomically(path: &Path, content: &[u8]) -> Result<()> {
    let failed = |error| Error::io("write", path)(error);
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    file.write_all(content).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    sync_folder(folder)
}

/// Writes a new file that all users can read, and flushes it.
pub(crate) fn write_synced(path: &Path, content: &[u8]) -> Result<()> {
    let failed = |error| Error::io("write", path)(error);
    let mut file = File::create(path).map_err(failed)?;
    file.set_permissions(Permissions::from_mode(0o644)).map_err(failed)?;
    file.write_all(content).map_err(failed)?;
    file.sync_all().map_err(failed)
}

/// Makes renames in a folder durable.
pub(crate) fn sync_folder(path: &Path) -> Result<()> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(Error::io("flush", path))
}

/// Flushes everything under a folder. A single call for the whole file system is far cheaper than
/// one call for each of some thousand small files.
pub(crate) fn sync_file_system(path: &Path) -> Result<()> {
    let folder = File::open(path).map_err(Error::io("open", path))?;
    rustix::fs::syncfs(folder).map_err(|errno| Error::io("flush", path)(errno.into()))
}

/// Makes a tree readable for all users and writable for its owner only. Refuses anything but files,
/// folders and links.
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

/// The number of entries in a tree that are not folders. Quick, because it does not read their
/// metadata.
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

/// The bytes on disk of some trees. Each inode counts once, because packages are hard-linked with
/// the cache.
pub(crate) fn bytes_on_disk<P: AsRef<Path>>(roots: impl IntoIterator<Item = P>) -> u64 {
    let mut seen = HashSet::new();
    let mut bytes = 0;
    for root in roots {
        // Entries that are removed during the walk are ignored.
        let _ = walk(root.as_ref(), &mut |_, metadata| {
            if seen.insert((metadata.dev(), metadata.ino())) {
                bytes += metadata.blocks() * 512;
            }
            Ok(())
        });
    }
    bytes
}

/// Visits a tree, folders before their content, without following links.
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

/// Removes a tree; does nothing if it does not exist.
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
    fn shared_trees_are_readable_but_not_writable() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        let text = folder.path().join("text");
        fs::write(&program, "").unwrap();
        fs::write(&text, "").unwrap();
        set_mode(&program, 0o4777).unwrap();
        set_mode(&text, 0o600).unwrap();
        share_tree(folder.path()).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!([mode(folder.path()), mode(&program), mode(&text)], [0o755, 0o755, 0o644]);
    }
}
