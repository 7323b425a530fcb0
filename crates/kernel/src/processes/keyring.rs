//! Keyrings, which a process inherits although it has no descriptor of them.

use std::io;

/// `KEYCTL_JOIN_SESSION_KEYRING` of keyctl(2).
const JOIN_SESSION_KEYRING: i32 = 1;

/// Replaces the inherited session keyring of this process with a new, empty one: a process that
/// possesses a keyring may read its keys, whatever its user id. A kernel without keys is fine.
pub fn leave_session() -> io::Result<()> {
    let anonymous = std::ptr::null::<libc::c_char>();
    // SAFETY: without a name the call reads no memory.
    let result = unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, anonymous) };
    if result >= 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
        error => Err(error),
    }
}
