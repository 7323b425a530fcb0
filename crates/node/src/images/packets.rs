//! The packets between the node and the daemon of images.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use snowmelt_kernel::packet;

use super::message::{DaemonControl, DaemonRequest, LONGEST, Notice};
use crate::Error;

/// Sends a request to the daemon behind a socket, and returns its answer.
pub(super) fn say_to(
    socket: &Path,
    ask: &DaemonRequest,
    fds: &[BorrowedFd<'_>],
    within: Duration,
) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let socket = packet::connect(socket)?;
    packet::send(&socket, &serde_json::to_vec(ask)?, fds)?;
    if !packet::wait(&socket, within)? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut answer = vec![0; LONGEST];
    let packet = packet::receive(&socket, &mut answer)?;
    if packet.length == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    answer.truncate(packet.length);
    Ok((answer, packet.fds))
}

/// Sends a message to the daemon over its control connection.
pub(super) fn say(
    control: &OwnedFd,
    said: &DaemonControl,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    packet::send(control, &serde_json::to_vec(said)?, fds)
}

/// Returns whether the error says that the other end of a connection is gone.
pub(super) fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe)
}

/// Calls `noticed` for each notice of the daemon, until the daemon has ended.
pub(super) fn notices(control: &OwnedFd, noticed: impl Fn(Notice)) {
    let mut buffer = [0; 1024];
    while let Ok(packet) = packet::receive(control, &mut buffer)
        && packet.length > 0
    {
        if let Ok(notice) = serde_json::from_slice(&buffer[..packet.length]) {
            noticed(notice);
        }
    }
}

/// Makes the error of a step that concerns the daemon.
pub(super) fn failed(step: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| snowmelt_image::Error::Mount { step, source }.into()
}
