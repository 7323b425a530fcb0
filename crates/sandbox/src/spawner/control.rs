//! The control socket of a lane: how it is received, and the first packets on it.
//!
//! Invariant: a server that has closed its end is no failure of the lane, which still has to remove
//! what it has made.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use snowmelt_kernel::{fds, packet};

use crate::message::{LONGEST_PACKET, MADE, Setup, SetupDone};

/// Sends the pidfd of a process that was made. A server that has ended is no error: the lane goes
/// on, finds it gone when it reports that it is ready, and removes what the server has left.
pub(super) fn announce(control: &OwnedFd, made: BorrowedFd<'_>) -> io::Result<()> {
    packet::send(control, MADE, &[made]).or_else(|error| match is_server_gone(&error) {
        true => Ok(()),
        false => Err(error),
    })
}

/// Returns whether this error of the control socket says that the server has closed its end, as it
/// does when it is killed.
pub(super) fn is_server_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// Returns the control socket, and replaces standard input, so that no other number refers to the
/// socket: a lane that is copied from this process must be able to close it.
pub(super) fn take_standard_input() -> io::Result<OwnedFd> {
    let control = io::stdin().as_fd().try_clone_to_owned()?;
    let null: OwnedFd = std::fs::File::open("/dev/null")?.into();
    fds::duplicate_to(null.as_fd(), 0)?;
    Ok(control)
}

/// Receives the set-up message, and the lock of the run directory, which is held until the end.
///
/// A server that is not root may not say where and with whose ids a spawner of root works: then
/// `trusted` is the message, from who started this process, and only the lock is taken.
pub(super) fn receive_setup(
    control: &OwnedFd,
    trusted: Option<Setup>,
) -> io::Result<(Setup, OwnedFd)> {
    let mut buffer = vec![0; LONGEST_PACKET];
    let mut packet = packet::receive(control, &mut buffer)?;
    let lock = packet.fds.pop().ok_or(io::ErrorKind::InvalidData)?;
    let setup = match trusted {
        Some(setup) => setup,
        None => serde_json::from_slice(&buffer[..packet.length])?,
    };
    Ok((setup, lock))
}

/// Reports that this lane is ready, or the reason why it cannot be.
pub(super) fn send_setup_done(
    control: &OwnedFd,
    outcome: Result<(), String>,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    packet::send(control, &serde_json::to_vec(&SetupDone(outcome))?, fds)
}
