//! Copies the bytes of a connection to another one, in both directions, without decoding them.

use std::time::Duration;

use rustix::net::sockopt;
use snowmelt_rpc::HostStream;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, copy_buf};
use tokio::net::UnixStream;

/// The bytes that are copied at a time.
const STEP: usize = 64 << 10;

/// Lets a connection wait for as long as its other end does not read. Otherwise the kernel would
/// break it after some seconds, while a worker that computes, or a driver that writes to a disk,
/// reads later. The session of the query finds out whether the other host has vanished.
pub(crate) fn wait_for_readers(stream: &HostStream) {
    wait_for_readers_within(stream, Duration::ZERO);
}

/// Lets a connection wait for at most `within` while its other end does not read, where nothing
/// else finds out that the other host has vanished.
pub(crate) fn wait_for_readers_within(stream: &HostStream, within: Duration) {
    let milliseconds = u32::try_from(within.as_millis()).unwrap_or(u32::MAX);
    if let Err(error) = sockopt::set_tcp_user_timeout(stream, milliseconds) {
        tracing::debug!(%error, "a connection keeps its limit of time");
    }
}

/// Copies until one end closes; then both are closed. All bytes that the closing end sent before
/// have arrived by then.
pub(crate) async fn relay(mut far: HostStream, mut near: UnixStream) {
    let (far_from, far_to) = far.split();
    let (near_from, near_to) = near.split();
    let copied = tokio::select! {
        copied = copy(far_from, near_to, STEP) => copied,
        copied = copy(near_from, far_to, STEP) => copied,
    };
    if let Err(error) = copied {
        tracing::debug!(%error, "the connection of a task broke");
    }
}

/// Copies until the end of `from`, at most `step` bytes at a time.
pub(crate) async fn copy(
    from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    step: usize,
) -> std::io::Result<()> {
    let mut from = BufReader::with_capacity(step, from);
    copy_buf(&mut from, &mut to).await?;
    to.flush().await
}
