//! Mounts by descriptor: trees are detached until they are attached explicitly.
//!
//! Invariant: no path is resolved inside a sandbox that a tenant could have changed; every
//! operation starts at a descriptor.

pub(crate) mod attributes;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags, fsconfig_create, fsconfig_set_fd, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, mount_bind, mount_change, move_mount, open_tree, unmount,
};

pub use rustix::mount::MountAttrFlags as Attributes;

use attributes::MountScope;

/// Makes a detached copy of the mount at `path`, with the mounts below it.
pub fn copy(path: &Path) -> io::Result<OwnedFd> {
    copy_at(CWD, path)
}

/// Makes a detached copy of the mount at `path` from `folder`, with the mounts below it.
pub fn copy_at(folder: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_NO_AUTOMOUNT
        | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(open_tree(folder, path, flags)?)
}

/// Makes a new file system of type `kind`, detached. An option with an empty value is a flag.
pub fn fresh(kind: &str, options: &[(&str, &str)], attributes: Attributes) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        match *value {
            "" => fsconfig_set_flag(context.as_fd(), *key)?,
            value => fsconfig_set_string(context.as_fd(), *key, value)?,
        }
    }
    fsconfig_create(context.as_fd())?;
    Ok(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// Makes a `/proc` of this pid namespace, detached (Linux 6.18).
pub fn proc_of(pids: impl AsFd, attributes: Attributes) -> io::Result<OwnedFd> {
    let context = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_fd(context.as_fd(), "pidns", pids)?;
    fsconfig_create(context.as_fd())?;
    Ok(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// Checks whether this kernel supports file systems of that kind; loads the module if there is one.
pub fn supports_file_system(kind: &str) -> io::Result<()> {
    fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    Ok(())
}

/// Attaches a detached tree on `target`.
pub fn attach(tree: impl AsFd, target: impl AsFd) -> io::Result<()> {
    attach_at(tree, target, Path::new(""))
}

/// Attaches a detached tree at `path` from `folder`.
pub fn attach_at(tree: impl AsFd, folder: impl AsFd, path: &Path) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(tree, "", folder, path, flags)?)
}

/// Attaches a detached tree with attributes set on each of its mounts.
///
/// Before Linux 5.12 a mount gets attributes only once it is attached: for a moment it is visible
/// at the target without them, so no other process may have access to the target yet.
pub fn attach_with(tree: impl AsFd, target: impl AsFd, set: Attributes) -> io::Result<()> {
    match attributes::set(tree.as_fd(), set, MountScope::Tree) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            attach(tree.as_fd(), target)?;
            attributes::remount(tree.as_fd(), set, MountScope::Tree)
        }
        outcome => outcome.and_then(|()| attach(tree, target)),
    }
}

/// Bind-mounts `source` at `target` in one call: for paths that no other process can change.
pub fn bind(source: &Path, target: &Path) -> io::Result<()> {
    Ok(mount_bind(source, target)?)
}

/// Sets attributes of only the attached mount whose root is `tree`.
pub fn set_attributes_of(tree: impl AsFd, set: Attributes) -> io::Result<()> {
    set_on_attached(tree.as_fd(), set, MountScope::One)
}

fn set_on_attached(tree: BorrowedFd<'_>, set: Attributes, reach: MountScope) -> io::Result<()> {
    match attributes::set(tree, set, reach) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            attributes::remount(tree, set, reach)
        }
        outcome => outcome,
    }
}

/// Whether this kernel sets attributes of detached mounts (Linux 5.12).
pub fn sets_attributes_of_detached() -> io::Result<bool> {
    let tree = fresh("tmpfs", &[("size", "64k")], Attributes::empty())?;
    match attributes::set(tree.as_fd(), inert(), MountScope::One) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(false),
        outcome => outcome.map(|()| true),
    }
}

/// Read-only, without set-user-id programs and device nodes.
pub fn inert() -> Attributes {
    MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
}

/// Makes this mount namespace private: mounts do not propagate to or from others.
pub fn make_private() -> io::Result<()> {
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(mount_change("/", flags)?)
}

/// Makes the attached mount `root` the root of this mount namespace and detaches the old one, so
/// that no path leads outside `root`.
pub fn pivot(root: impl AsFd) -> io::Result<()> {
    rustix::process::fchdir(root)?;
    // Stacking the old root on the new one needs no folder for it.
    rustix::process::pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    Ok(rustix::process::chdir("/")?)
}

/// Unmounts `path`, now or when its last user is gone.
pub fn detach(path: &Path) -> io::Result<()> {
    Ok(unmount(path, UnmountFlags::DETACH)?)
}
