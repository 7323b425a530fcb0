//! Mounts by descriptor: trees that are nowhere until they are attached.
//!
//! Invariant: nothing here resolves a path inside a sandbox that a tenant could have changed;
//! every step begins at a descriptor.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
    mount_change, move_mount, open_tree, unmount,
};

pub use rustix::mount::MountAttrFlags as Attributes;

/// A detached copy of the mount at `path`, with those below it.
pub fn copy(path: &Path) -> io::Result<OwnedFd> {
    copy_at(CWD, path)
}

/// A detached copy of the mount at `path` from `folder`, with those below it.
pub fn copy_at(folder: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_NO_AUTOMOUNT
        | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(open_tree(folder, path, flags)?)
}

/// A fresh file system of type `kind` that is mounted nowhere.
pub fn fresh(kind: &str, options: &[(&str, &str)], attributes: Attributes) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(context.as_fd(), *key, *value)?;
    }
    fsconfig_create(context.as_fd())?;
    Ok(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// Whether this kernel has file systems of that kind; loads its module, if it is one.
pub fn knows_file_system(kind: &str) -> io::Result<()> {
    fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    Ok(())
}

/// Attaches a detached tree on what `target` is.
pub fn attach(tree: impl AsFd, target: impl AsFd) -> io::Result<()> {
    attach_at(tree, target, Path::new(""))
}

/// Attaches a detached tree at `path` from `folder`.
pub fn attach_at(tree: impl AsFd, folder: impl AsFd, path: &Path) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(tree, "", folder, path, flags)?)
}

/// The argument of mount_setattr(2).
#[repr(C)]
struct SetAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Sets attributes of the mount that `tree` is the root of, and of those below it.
pub fn set_attributes(tree: impl AsFd, set: Attributes) -> io::Result<()> {
    mount_setattr(tree, set, libc::AT_RECURSIVE)
}

/// Sets attributes of the one mount that `tree` is the root of.
pub fn set_attributes_of(tree: impl AsFd, set: Attributes) -> io::Result<()> {
    mount_setattr(tree, set, 0)
}

fn mount_setattr(tree: impl AsFd, set: Attributes, flags: i32) -> io::Result<()> {
    let argument =
        SetAttributes { set: u64::from(set.bits()), clear: 0, propagation: 0, user_namespace: 0 };
    // SAFETY: the path is a C string and the structure is alive and of the size that is passed.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | flags,
            &raw const argument,
            size_of::<SetAttributes>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Read-only, and neither set-user-id programs nor device nodes work.
pub fn inert() -> Attributes {
    MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
}

/// Cuts this mount namespace off: no mount made here shows elsewhere, and the reverse.
pub fn make_private() -> io::Result<()> {
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(mount_change("/", flags)?)
}

/// Makes the attached mount `root` the root of this mount namespace; the old one is let go, so
/// that nothing outside `root` can be reached by any path.
pub fn pivot(root: impl AsFd) -> io::Result<()> {
    rustix::process::fchdir(root)?;
    // Stacking the old root on the new one needs no folder to put it into.
    rustix::process::pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    Ok(rustix::process::chdir("/")?)
}

/// Takes away the mount at `path`, now or when the last user is gone.
pub fn detach(path: &Path) -> io::Result<()> {
    Ok(unmount(path, UnmountFlags::DETACH)?)
}
