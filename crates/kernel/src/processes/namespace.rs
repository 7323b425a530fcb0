//! Namespaces of the calling, single-threaded process.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The `CLONE_NEW*` flags by their nouns.
#[allow(missing_docs)]
pub mod flags {
    pub const MOUNT: u64 = libc::CLONE_NEWNS as u64;
    pub const UTS: u64 = libc::CLONE_NEWUTS as u64;
    pub const IPC: u64 = libc::CLONE_NEWIPC as u64;
    pub const USER: u64 = libc::CLONE_NEWUSER as u64;
    pub const PID: u64 = libc::CLONE_NEWPID as u64;
    pub const NETWORK: u64 = libc::CLONE_NEWNET as u64;
    pub const CGROUP: u64 = libc::CLONE_NEWCGROUP as u64;
}

/// Replaces the namespaces of these kinds with new ones.
pub fn unshare(kinds: u64) -> io::Result<()> {
    // SAFETY: `CLONE_NEW*` flags change what this process sees, not its memory; other flags are
    // masked out.
    let result = unsafe { libc::unshare((kinds & ALL) as libc::c_int) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

const ALL: u64 = flags::MOUNT
    | flags::UTS
    | flags::IPC
    | flags::USER
    | flags::PID
    | flags::NETWORK
    | flags::CGROUP;

/// Joins the namespace of this descriptor, if it is of this kind.
pub fn join(namespace: impl AsFd, kind: u64) -> io::Result<()> {
    // SAFETY: takes a descriptor that the borrow keeps open, and a number.
    let result = unsafe { libc::setns(namespace.as_fd().as_raw_fd(), kind as libc::c_int) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
