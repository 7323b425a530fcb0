//! A process that opens files for the server as the user at the other end of a connection.
//!
//! Invariant: who that user is says the kernel, for the connection, and the process has the user's
//! rights before it reads the first byte of the server. So it may parse what it likes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, getsockname};
use snowmelt_kernel::file_user::become_file_user;
use snowmelt_kernel::socket::peer_user;
use snowmelt_kernel::{fds, packet};

use crate::message::answer;

/// A function that serves files to the server on a socket, as the user that the process has become.
pub type FileService = fn(OwnedFd);

/// Runs the process, a copy of the broker.
pub(crate) fn run(socket: OwnedFd, connection: &OwnedFd, door: &Path, serve: FileService) -> i32 {
    let user = check_accepted(connection, door);
    let user = user.and_then(|()| peer_user(connection)).and_then(|user| become_file_user(&user));
    // The broker's own socket above all.
    let alone = fds::duplicate_to(socket.as_fd(), 0).and_then(|()| fds::close_from(3));
    let socket = io::stdin().as_fd().try_clone_to_owned();
    let Ok(socket) = alone.and(socket) else { return 1 };
    let is_ready = user.is_ok();
    if packet::send(&socket, &answer(&user), &[]).is_ok() && is_ready {
        serve(socket);
    }
    // The descriptors of the broker are closed already, and must not be closed by their owners.
    std::process::exit(i32::from(!is_ready))
}

/// Checks that a connection was accepted at the server's socket. The kernel names whoever listens as
/// the other end of a connection to a socket, and root listens at many: such a connection, which the
/// server can make, says nothing about a user of the server.
fn check_accepted(connection: &OwnedFd, door: &Path) -> io::Result<()> {
    let address = SocketAddrUnix::try_from(getsockname(connection)?);
    let is_door = address.is_ok_and(|address| {
        address.path_bytes().is_some_and(|path| path == door.as_os_str().as_encoded_bytes())
    });
    if is_door { Ok(()) } else { Err(Errno::PERM.into()) }
}
