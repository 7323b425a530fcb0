//! The first packet of a lane, with which it reports that it is ready or why it cannot be.
//!
//! Invariant: a lane counts as ready only with the descriptor of its process, by which it is
//! reaped.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use snowmelt_kernel::packet;
use tokio::io::unix::AsyncFd;

use crate::message::SetupDone;

/// A lane that has reported that it is ready, and whose socket is not read yet.
pub(super) struct ReadyLane {
    /// The number of the lane.
    pub lane: u32,
    /// The process of the lane, a child of this one.
    pub pidfd: OwnedFd,
    /// The control socket of the lane.
    pub socket: Arc<AsyncFd<OwnedFd>>,
}

/// Makes a socket non-blocking and registers it with the runtime.
pub(super) fn watch(socket: OwnedFd) -> io::Result<Arc<AsyncFd<OwnedFd>>> {
    rustix::io::ioctl_fionbio(&socket, true)?;
    #[expect(deprecated, reason = "it is unsound for types whose descriptor may change")]
    let socket = AsyncFd::new(socket)?;
    Ok(Arc::new(socket))
}

/// Waits until a lane reports that it is ready.
pub(super) async fn wait_for(lane: u32, socket: OwnedFd) -> io::Result<ReadyLane> {
    let socket = watch(socket)?;
    let mut buffer = [0; 4096];
    let received = socket.async_io(tokio::io::Interest::READABLE, |socket| {
        packet::receive(socket.as_fd(), &mut buffer)
    });
    let (pidfd, _) = ready(&received.await?, &buffer)?.map_err(io::Error::other)?;
    Ok(ReadyLane { lane, pidfd, socket })
}

/// A lane's process, and the init process that ends after the last lane ([`SetupDone`]).
pub(super) type Processes = (OwnedFd, Option<OwnedFd>);

/// Decodes the first packet of a lane: its processes if it is ready, else the reason.
pub(super) fn ready(
    packet: &packet::Packet,
    buffer: &[u8],
) -> io::Result<std::result::Result<Processes, String>> {
    if packet.length == 0 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended immediately"));
    }
    let SetupDone(outcome) = serde_json::from_slice(&buffer[..packet.length])?;
    match (outcome, packet.fds.first()) {
        (Err(reason), _) => Ok(Err(reason)),
        (Ok(()), Some(pidfd)) => {
            let init = packet.fds.get(1).map(OwnedFd::try_clone).transpose()?;
            Ok(Ok((pidfd.try_clone()?, init)))
        }
        (Ok(()), None) => Err(io::ErrorKind::InvalidData.into()),
    }
}
