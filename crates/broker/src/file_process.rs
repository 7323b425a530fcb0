//! A process that opens files for the server as the user at the other end of a connection.
//!
//! Invariant: who that user is says the kernel, for the connection, and the process has the user's
//! rights before it reads the first byte of the server. So it may parse what it likes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::net::sockopt::socket_acceptconn;
use snowmelt_kernel::file_user::become_file_user;
use snowmelt_kernel::socket::{bound_file, peer_user};
use snowmelt_kernel::{fds, packet};

use crate::message::answer;

/// A function that serves files to the server on a socket, as the user that the process has become.
pub type FileService = fn(OwnedFd);

/// Runs the process, a copy of the broker.
pub(crate) fn run(
    socket: OwnedFd,
    connection: &OwnedFd,
    door: &OwnedFd,
    serve: FileService,
) -> i32 {
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

/// Checks that a connection was accepted at the server's socket, and that its user is still there.
///
/// The kernel names whoever listens as the other end of a connection to a socket, and root listens at
/// many. Names of sockets are any text. Only the file of the socket, which this process has known
/// since the server was root, says where a connection was accepted.
fn check_accepted(connection: &OwnedFd, door: &OwnedFd) -> io::Result<()> {
    // The server's own listener is bound there too, and has root at its other end: who made it.
    if socket_acceptconn(connection)? {
        return Err(Errno::PERM.into());
    }
    let of_door = fstat(door)?;
    let found = fstat(bound_file(connection)?)?;
    let mut is_open = [PollFd::new(connection, PollFlags::RDHUP)];
    poll(&mut is_open, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    let is_gone = is_open[0].revents().intersects(PollFlags::HUP | PollFlags::RDHUP);
    match (found.st_dev, found.st_ino) == (of_door.st_dev, of_door.st_ino) && !is_gone {
        true => Ok(()),
        false => Err(Errno::PERM.into()),
    }
}
