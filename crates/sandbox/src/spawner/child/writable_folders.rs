//! The folders of its root in which a program may write: they are copies in the program's scratch,
//! mounted over the originals.
//!
//! Invariants: the contents of the copies count to the size of the scratch, and so to the memory of
//! the sandbox. Paths are looked up in the root of the sandbox, before it has a `/proc` whose links
//! lead elsewhere. Files that not all users of the root may read are not copied: the copy belongs
//! to the function.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use snowmelt_kernel::mount;

use crate::spec::{RUN, may_be_writable};

/// The folder of the copies in the scratch.
const COPIES: &str = "/tmp/.writable";

/// The folder in `/run` with the files that the platform gives to a sandbox.
const OURS: &str = "snowmelt";

/// The greatest depth of folders below each other that are copied.
const MAX_DEPTH: usize = 64;

/// Makes folders writable for the owner, a user of the host. On failure returns a step and its
/// error.
pub(super) fn attach(folders: &[PathBuf], owner: u32) -> Result<(), (String, io::Error)> {
    for (at, folder) in folders.iter().enumerate() {
        let copy = Path::new(COPIES).join(at.to_string());
        attach_one(folder, &copy, owner).map_err(|error| (step(folder), error))?;
    }
    Ok(())
}

fn attach_one(folder: &Path, copy: &Path, owner: u32) -> io::Result<()> {
    // A link of the image, such as /var/run, may lead to a folder of the sandbox's own.
    let folder = fs::canonicalize(folder)?;
    if !may_be_writable(&folder) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    if folder == Path::new("/tmp") {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o755).create(copy)?;
    if folder != Path::new(RUN) {
        copy_folder(&folder, copy, owner, MAX_DEPTH)?;
        return mount::bind(copy, &folder);
    }
    // What the platform has there stays below the copy, read-only as it is.
    let ours = mount::copy(&Path::new(RUN).join(OURS))?;
    fs::create_dir(copy.join(OURS))?;
    // After the folder for the platform in it, which stays the property of root.
    chown(copy, Some(owner), Some(owner))?;
    mount::bind(copy, &folder)?;
    // The mount was copied before the bind covered its folder; no path leads to the original any
    // more.
    mount::attach(ours, File::open(folder.join(OURS))?)
}

fn step(folder: &Path) -> String {
    format!("make {} writable", folder.display())
}

/// Copies the contents of a folder to another one, which gets the mode of the former.
fn copy_folder(from: &Path, to: &Path, owner: u32, depth: usize) -> io::Result<()> {
    let found = fs::metadata(from)?;
    if !found.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    if found.mode() & 0o005 == 0o005 && depth > 0 {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy_entry(&entry.path(), &to.join(entry.file_name()), owner, depth - 1)?;
        }
    }
    // Its new owner can always use it.
    fs::set_permissions(to, Permissions::from_mode(found.mode() & 0o777 | 0o700))?;
    chown(to, Some(owner), Some(owner))
}

fn copy_entry(from: &Path, to: &Path, owner: u32, depth: usize) -> io::Result<()> {
    let found = fs::symlink_metadata(from)?;
    let kind = found.file_type();
    if kind.is_symlink() {
        symlink(fs::read_link(from)?, to)?;
        lchown(to, Some(owner), Some(owner))
    } else if kind.is_dir() {
        fs::create_dir(to)?;
        copy_folder(from, to, owner, depth)
    } else if kind.is_file() && found.mode() & 0o004 != 0 {
        fs::copy(from, to)?;
        // Without the set-user-id bits: the copy belongs to the function's user.
        fs::set_permissions(to, Permissions::from_mode(found.mode() & 0o777 | 0o600))?;
        chown(to, Some(owner), Some(owner))
    } else {
        Ok(())
    }
}
