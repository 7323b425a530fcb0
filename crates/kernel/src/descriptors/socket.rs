//! Socket options that `rustix` does not have.

use std::io;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::net::sockopt::socket_peercred;

use crate::file_user::FileUser;

/// `SO_NETNS_COOKIE` (Linux 5.14).
const SO_NETNS_COOKIE: libc::c_int = 71;

/// The id of the network namespace of a socket: unique until the machine reboots.
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

/// `SIOCUNIXFILE` (Linux 4.12).
const UNIX_FILE: libc::c_ulong = 0x89E0;

/// Returns the file at which a unix socket is bound, as an `O_PATH` descriptor. An accepted connection
/// has the file of its listener, and no other socket can be bound to that file. Needs `CAP_NET_ADMIN`.
///
/// # Errors
/// `ENOENT` for a socket that is not bound to a file, `ENOTTY` for what is no unix socket.
pub fn bound_file(socket: impl AsFd) -> io::Result<OwnedFd> {
    // SAFETY: the request takes no argument, and returns a new descriptor or an error.
    let file = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), UNIX_FILE as _, 0) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// The further groups that a user is expected to have at most; more take a second call.
const USUAL_GROUPS: usize = 64;

/// Returns the user at the other end of a unix socket, with the groups that its process had when it
/// connected (`SO_PEERCRED`, `SO_PEERGROUPS`).
pub fn peer_user(socket: impl AsFd) -> io::Result<FileUser> {
    let peer = socket_peercred(&socket)?;
    let mut groups = vec![0u32; USUAL_GROUPS];
    loop {
        let mut length = size_of_val(&*groups) as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes, which is the size of `groups`.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        let found = length as usize / size_of::<u32>();
        if result == 0 {
            groups.truncate(found);
            let user = peer.uid.as_raw();
            return Ok(FileUser { user, group: peer.gid.as_raw(), groups, connection: None });
        }
        let error = io::Error::last_os_error();
        // The kernel says how many there are.
        if error.raw_os_error() != Some(libc::ERANGE) || found <= groups.len() {
            return Err(error);
        }
        groups.resize(found, 0);
    }
}

/// `IP_BIND_ADDRESS_NO_PORT`, for IPv4 and IPv6.
const BIND_ADDRESS_NO_PORT: libc::c_int = 24;

/// Sets whether binding port 0 defers the choice of a port: then only the address is bound, and
/// another address may be bound later.
pub fn set_bind_address_only(socket: impl AsFd, enabled: bool) -> io::Result<()> {
    let value = libc::c_int::from(enabled);
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

/// Sends a datagram from an IPv6 socket with this source address; an IPv4-mapped address stands for
/// an IPv4 address. Does not wait for buffer space.
pub fn send_from(
    socket: impl AsFd,
    data: &[u8],
    target: SocketAddrV6,
    source: Ipv6Addr,
) -> io::Result<usize> {
    #[repr(C)]
    struct ControlMessage {
        header: libc::cmsghdr,
        source: libc::in6_pktinfo,
    }
    // SAFETY: all three hold only numbers and pointers, for which 0 is valid.
    let (mut name, mut control, mut message): (libc::sockaddr_in6, ControlMessage, libc::msghdr) =
        unsafe { std::mem::zeroed() };
    name.sin6_family = libc::AF_INET6 as libc::sa_family_t;
    name.sin6_port = target.port().to_be();
    name.sin6_addr.s6_addr = target.ip().octets();
    name.sin6_scope_id = target.scope_id();
    control.header.cmsg_len = size_of::<ControlMessage>() as _;
    control.header.cmsg_level = libc::SOL_IPV6;
    control.header.cmsg_type = libc::IPV6_PKTINFO;
    control.source.ipi6_addr.s6_addr = source.octets();
    let mut parts = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    message.msg_iov = &raw mut parts;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<ControlMessage>() as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: everything that the message points to is alive during the call, and only read.
    let sent = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}
