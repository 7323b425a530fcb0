//! Landlock: restrictions of a process on itself and on the programs that it executes.
//!
//! Invariant: everything that the kernel's version can enforce is enforced, and no unknown right is
//! requested.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

use crate::shared_structure;

shared_structure! {
    /// The argument of landlock_create_ruleset(2) with scopes (Linux 6.12); an older kernel reads
    /// only the part that it knows.
    #[repr(C)]
    pub struct Ruleset as "landlock_ruleset" {
        /// The rights about files that are denied unless a rule allows them.
        files: u64,
        /// The rights about the network that are denied unless a rule allows them.
        network: u64,
        /// The kinds of objects that are denied outside the domain of the process.
        scoped: u64,
    }
}

shared_structure! {
    /// The argument of landlock_add_rule(2) for files.
    #[repr(C, packed)]
    pub struct PathBeneath as "landlock_path_beneath" {
        /// The allowed rights.
        allowed: u64,
        /// The descriptor of the folder.
        parent: i32,
    }
}

/// The flag of landlock_create_ruleset(2) that asks for the version of the interface.
pub const VERSION: u32 = 1;
/// The type of a rule about files beneath a folder.
pub const PATH_BENEATH: u32 = 1;
const ABSTRACT_UNIX_SOCKETS: u64 = 1;
const SIGNALS: u64 = 2;

/// The first version that allows renames between folders, and the first with scopes.
const VERSION_WITH_REFER: u32 = 2;
const VERSION_WITH_SCOPES: u32 = 6;

/// The newest version from which this file requests anything.
pub const NEWEST: u32 = VERSION_WITH_SCOPES;

const WRITE_FILE: u64 = 1 << 1;
/// The rights to remove, make and rename: `REMOVE_DIR` (bit 4) to `REFER` (bit 13), and `TRUNCATE`.
const CHANGE_FOLDER: u64 = 0x1ff << 4;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const DEVICE_CONTROL: u64 = 1 << 15;
const MAKE_DEVICES: u64 = 1 << 6 | 1 << 11;

/// The rights that remain denied in the writable folder.
pub const DENIED_IN_WRITABLE: u64 = MAKE_DEVICES | DEVICE_CONTROL;
/// The rights that are allowed in the folder of devices.
pub const ALLOWED_IN_DEVICES: u64 = WRITE_FILE | TRUNCATE | DEVICE_CONTROL;

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
pub fn confine(writable: &[BorrowedFd<'_>], devices: BorrowedFd<'_>) -> io::Result<()> {
    let rules = rules_of(version());
    let files = rules.files;
    if files | rules.scoped == 0 {
        return Ok(());
    }
    let ruleset = create(&rules)?;
    if files != 0 {
        for folder in writable {
            allow(&ruleset, *folder, files & !DENIED_IN_WRITABLE)?;
        }
        allow(&ruleset, devices, files & ALLOWED_IN_DEVICES)?;
    }
    restrict(&ruleset)
}

/// The rules that confine a process by this version of the interface.
pub fn rules_of(version: u32) -> Ruleset {
    // A version without `REFER` forbids all renames between folders, which breaks programs.
    let files = if version < VERSION_WITH_REFER { 0 } else { files_of(version) };
    let scoped = if version < VERSION_WITH_SCOPES { 0 } else { ABSTRACT_UNIX_SOCKETS | SIGNALS };
    Ruleset { files, network: 0, scoped }
}

/// Denies abstract unix sockets and signals of processes outside and leaves files unrestricted, for
/// a process that must still mount. Does nothing where the kernel does not support it.
pub fn scope() -> io::Result<()> {
    let rules = Ruleset { files: 0, ..rules_of(version()) };
    if rules.scoped == 0 { Ok(()) } else { restrict(&create(&rules)?) }
}

/// The rights about changes of files that a version of the interface can deny.
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
