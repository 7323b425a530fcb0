//! Landlock: restrictions that a process puts on itself and on what it executes.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// The argument of landlock_create_ruleset(2) with scopes (Linux 6.12).
#[repr(C)]
struct Ruleset {
    files: u64,
    network: u64,
    scoped: u64,
}

const VERSION: u32 = 1;
const ABSTRACT_UNIX_SOCKETS: u64 = 1;
const SIGNALS: u64 = 2;

/// The first version with scopes.
const VERSION_WITH_SCOPES: u32 = 6;

/// The version of the interface that this kernel has; 0 for none.
pub fn version() -> u32 {
    // SAFETY: with this flag the call takes no ruleset and gives a number.
    let result = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<Ruleset>(), 0, VERSION)
    };
    u32::try_from(result).unwrap_or(0)
}

/// Cuts abstract unix sockets and signals off from processes outside: those sockets are named
/// by network namespace, and sandboxes share an empty one. Does nothing, and says false, where
/// the kernel cannot.
pub fn scope() -> io::Result<bool> {
    if version() < VERSION_WITH_SCOPES {
        return Ok(false);
    }
    let ruleset = Ruleset { files: 0, network: 0, scoped: ABSTRACT_UNIX_SOCKETS | SIGNALS };
    // SAFETY: the structure is alive and of the size that is passed.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const ruleset,
            size_of::<Ruleset>(),
            0,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let raw = std::os::fd::AsRawFd::as_raw_fd(&fd);
    // SAFETY: a descriptor that is open, and no flags.
    let result = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, raw, 0) };
    if result == 0 { Ok(true) } else { Err(io::Error::last_os_error()) }
}
