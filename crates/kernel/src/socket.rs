//! What sockets say of themselves that `rustix` does not ask.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `SO_NETNS_COOKIE` (Linux 5.14).
const SO_NETNS_COOKIE: libc::c_int = 71;

/// The number of the network namespace that a socket belongs to: no two have the same until the
/// machine starts again.
pub fn namespace_cookie(socket: impl AsFd) -> io::Result<u64> {
    let mut cookie = 0u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, which is the size of `cookie`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(cookie) } else { Err(io::Error::last_os_error()) }
}

/// `IP_BIND_ADDRESS_NO_PORT`, of IPv4 and IPv6 alike.
const BIND_ADDRESS_NO_PORT: libc::c_int = 24;

/// Whether to bind port 0 leaves the choice of a port for later: an address alone is bound then,
/// and another one may be bound instead.
pub fn set_bind_address_only(socket: impl AsFd, is_so: bool) -> io::Result<()> {
    let value = libc::c_int::from(is_so);
    // SAFETY: the kernel reads as many bytes as `value` has.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_IP,
            BIND_ADDRESS_NO_PORT,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
