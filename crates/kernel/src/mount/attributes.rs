//! Attributes of mounts: for a tree in one call where the kernel supports it (Linux 5.12),
//! otherwise by one remount for each mount.
//!
//! Invariant: a remount only removes rights. It names a mount by a descriptor whose mount id was
//! compared with the intended one, so that a folder that is renamed concurrently cannot redirect it
//! to another mount.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{CWD, Mode, OFlags, StatVfsMountFlags, fstatvfs, openat};
use rustix::mount::{MountFlags, mount_remount};

use super::Attributes;

/// The scope of a change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MountScope {
    /// The mount itself.
    One,
    /// The mount and all below it.
    Tree,
}

/// The argument of mount_setattr(2).
#[repr(C)]
struct SetAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Uses mount_setattr(2), attached or not; [`io::ErrorKind::Unsupported`] before Linux 5.12.
pub(super) fn set(tree: BorrowedFd<'_>, set: Attributes, reach: MountScope) -> io::Result<()> {
    let argument =
        SetAttributes { set: u64::from(set.bits()), clear: 0, propagation: 0, user_namespace: 0 };
    let flags = if reach == MountScope::Tree { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a C string and the structure is alive and of the size that is passed.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | flags,
            &raw const argument,
            size_of::<SetAttributes>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Uses mount(2), for a tree that is attached in this mount namespace.
pub(super) fn remount(tree: BorrowedFd<'_>, set: Attributes, reach: MountScope) -> io::Result<()> {
    remount_one(tree, set)?;
    if reach == MountScope::One {
        return Ok(());
    }
    for below in below(tree)? {
        // A mount that is covered by another one cannot be reached by a sandbox either.
        if let Some(mount) = below.open()? {
            remount_one(mount.as_fd(), set)?;
        }
    }
    Ok(())
}

fn remount_one(mount: BorrowedFd<'_>, set: Attributes) -> io::Result<()> {
    // A remount replaces the flags, so the old ones are repeated.
    let before = fstatvfs(mount)?.f_flag;
    let pairs = [
        (Attributes::MOUNT_ATTR_RDONLY, StatVfsMountFlags::RDONLY, MountFlags::RDONLY),
        (Attributes::MOUNT_ATTR_NOSUID, StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (Attributes::MOUNT_ATTR_NODEV, StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (Attributes::MOUNT_ATTR_NOEXEC, StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (Attributes::MOUNT_ATTR_NOATIME, StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (Attributes::MOUNT_ATTR_NODIRATIME, StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
    ];
    let wanted =
        pairs.into_iter().filter(|(new, old, _)| set.contains(*new) || before.contains(*old));
    let flags = wanted.fold(MountFlags::BIND, |flags, (_, _, flag)| flags | flag);
    Ok(mount_remount(format!("/proc/self/fd/{}", mount.as_raw_fd()), flags, "")?)
}

/// A mount as the kernel lists it.
struct ListedMount {
    id: u64,
    path: PathBuf,
}

impl ListedMount {
    /// Opens the root of the mount; `None` if its path now leads to another mount.
    fn open(&self) -> io::Result<Option<OwnedFd>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = match openat(CWD, &self.path, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            opened => opened?,
        };
        Ok((mount_id(opened.as_fd())? == self.id).then_some(opened))
    }
}

/// The mounts below this one, parents first.
fn below(tree: BorrowedFd<'_>) -> io::Result<Vec<ListedMount>> {
    let mut parents = BTreeSet::from([mount_id(tree)?]);
    let text = fs::read_to_string("/proc/self/mountinfo")?;
    let mut left: Vec<(u64, u64, &str)> = text.lines().filter_map(listed).collect();
    let mut found = Vec::new();
    // The list is not sorted: after a move, a parent can be listed after its child.
    loop {
        let (next, rest): (Vec<_>, Vec<_>) = left
            .into_iter()
            .partition(|(id, parent, _)| parents.contains(parent) && !parents.contains(id));
        if next.is_empty() {
            return Ok(found);
        }
        parents.extend(next.iter().map(|(id, _, _)| *id));
        found
            .extend(next.into_iter().map(|(id, _, path)| ListedMount { id, path: unescape(path) }));
        left = rest;
    }
}

/// A line of `mountinfo` (proc(5)): id, parent, device, root, path.
fn listed(line: &str) -> Option<(u64, u64, &str)> {
    let mut fields = line.split(' ');
    let id = fields.next()?.parse().ok()?;
    let parent = fields.next()?.parse().ok()?;
    Some((id, parent, fields.nth(2)?))
}

/// Decodes a path of `mountinfo`. The kernel writes spaces, tabs, newlines and backslashes as three
/// octal digits.
pub(crate) fn unescape(path: &str) -> PathBuf {
    let mut parts = path.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match digits {
            Some(byte) => {
                plain.push(char::from(byte));
                plain.push_str(&part[3..]);
            }
            None => {
                plain.push('\\');
                plain.push_str(part);
            }
        }
    }
    plain.into()
}

fn mount_id(file: BorrowedFd<'_>) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
    let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    id.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_list() {
        let line = r"36 35 98:0 /mnt1 /mnt\0402\134x rw,noatime master:1 - ext3 /dev/root rw";
        let (id, parent, path) = listed(line).unwrap();
        assert_eq!((id, parent, unescape(path)), (36, 35, PathBuf::from(r"/mnt 2\x")));
        assert!(listed("36 x").is_none());
    }

    #[test]
    fn finds_the_mount_of_a_file() {
        let root = fs::File::open("/proc").unwrap();
        let list = fs::read_to_string("/proc/self/mountinfo").unwrap();
        // Of several mounts at one path the last one is seen.
        let is_proc = |(_, _, path): &(u64, u64, &str)| *path == "/proc";
        let proc = list.lines().filter_map(listed).rfind(is_proc).unwrap();
        assert_eq!(mount_id(root.as_fd()).unwrap(), proc.0);
    }
}
