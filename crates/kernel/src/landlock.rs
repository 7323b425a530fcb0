//! Landlock: restrictions of a process on itself and on the programs that it executes.
//!
//! Invariant: everything that the kernel's version can enforce is enforced, and no unknown right is
//! requested.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// The argument of landlock_create_ruleset(2) with scopes (Linux 6.12); an older kernel reads only
/// the part that it knows.
#[repr(C)]
struct Ruleset {
    files: u64,
    network: u64,
    scoped: u64,
}

/// The argument of landlock_add_rule(2) for files.
#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: i32,
}

const VERSION: u32 = 1;
const PATH_BENEATH: u32 = 1;
const ABSTRACT_UNIX_SOCKETS: u64 = 1;
const SIGNALS: u64 = 2;

/// The first version that allows renames between folders, and the first with scopes.
const VERSION_WITH_REFER: u32 = 2;
const VERSION_WITH_SCOPES: u32 = 6;

const WRITE_FILE: u64 = 1 << 1;
/// Removing, making and renaming: `REMOVE_DIR` (bit 4) to `REFER` (bit 13), and `TRUNCATE`.
const CHANGE_FOLDER: u64 = 0x1ff << 4;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const DEVICE_CONTROL: u64 = 1 << 15;
const MAKE_DEVICES: u64 = 1 << 6 | 1 << 11;

/// The version of the interface that this kernel has; 0 for none. Cached: it never changes.
pub fn version() -> u32 {
    static VERSION: OnceLock<u32> = OnceLock::new();
    *VERSION.get_or_init(query_version)
}

fn query_version() -> u32 {
    // SAFETY: with this flag the call takes no ruleset and returns a number.
    let result = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<Ruleset>(), 0, VERSION)
    };
    u32::try_from(result).unwrap_or(0)
}

/// Restricts this process and its children: they write, make, rename and remove files only beneath
/// `writable`, control only devices beneath `devices`, make no device, change no mount, and reach
/// neither abstract unix sockets nor processes outside. (Abstract sockets belong to a network
/// namespace, and sandboxes of equal roots share an empty one.) Needs `no_new_privs`.
///
/// A kernel without a part of this leaves that part out (scopes exist since Linux 6.12).
pub fn confine(writable: BorrowedFd<'_>, devices: BorrowedFd<'_>) -> io::Result<()> {
    let version = version();
    // A version without `REFER` forbids all renames between folders, which breaks programs.
    let files = if version < VERSION_WITH_REFER { 0 } else { files_of(version) };
    let scoped = if version < VERSION_WITH_SCOPES { 0 } else { ABSTRACT_UNIX_SOCKETS | SIGNALS };
    if files | scoped == 0 {
        return Ok(());
    }
    let ruleset = create(&Ruleset { files, network: 0, scoped })?;
    if files != 0 {
        allow(&ruleset, writable, files & !(MAKE_DEVICES | DEVICE_CONTROL))?;
        allow(&ruleset, devices, files & (WRITE_FILE | TRUNCATE | DEVICE_CONTROL))?;
    }
    restrict(&ruleset)
}

/// Denies abstract unix sockets and signals of processes outside and leaves files unrestricted, for
/// a process that must still mount. Does nothing where the kernel does not support it.
pub fn scope() -> io::Result<()> {
    if version() < VERSION_WITH_SCOPES {
        return Ok(());
    }
    restrict(&create(&Ruleset { files: 0, network: 0, scoped: ABSTRACT_UNIX_SOCKETS | SIGNALS })?)
}

/// The rights about changes that this version can deny.
fn files_of(version: u32) -> u64 {
    let truncate = if version < 3 { 0 } else { TRUNCATE };
    let control = if version < 5 { 0 } else { DEVICE_CONTROL };
    WRITE_FILE | CHANGE_FOLDER | REFER | truncate | control
}

fn create(ruleset: &Ruleset) -> io::Result<OwnedFd> {
    // The kernel accepts a longer structure than it knows only if the rest is zero, which it is.
    // SAFETY: the structure is alive and of the size that is passed.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::from_ref(ruleset),
            size_of::<Ruleset>(),
            0,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn allow(ruleset: &OwnedFd, folder: BorrowedFd<'_>, allowed: u64) -> io::Result<()> {
    let rule = PathBeneath { allowed, parent: folder.as_raw_fd() };
    let raw = ruleset.as_raw_fd();
    // SAFETY: both descriptors are open by their borrows, and the structure is alive.
    let result = unsafe {
        libc::syscall(libc::SYS_landlock_add_rule, raw, PATH_BENEATH, &raw const rule, 0)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn restrict(ruleset: &OwnedFd) -> io::Result<()> {
    // SAFETY: a descriptor that is open, and no flags.
    let result = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_no_right_that_a_version_does_not_know() {
        for (version, highest) in [(2, 13), (3, 14), (4, 14), (5, 15), (7, 15)] {
            assert_eq!(files_of(version) >> highest, 1, "version {version}");
        }
        // Bits 4 to 12 are the folder rights, of which two make devices.
        assert_eq!(CHANGE_FOLDER, 0b1_1111_1111_0000);
        assert_eq!(CHANGE_FOLDER & MAKE_DEVICES, MAKE_DEVICES);
    }
}
