//! Passes the bytes of a stream on between two hosts.
//!
//! The worker has a local socket, and its agent copies between that socket and a connection to the
//! other agent. The bytes on their way are bounded by the buffers of both sockets and one piece
//! here: if the receiver does not read, the sender waits.
//!
//! Rows go in one direction. The other direction says only that nobody reads any more.

use rustix::net::sockopt::{
    set_socket_recv_buffer_size, set_socket_send_buffer_size, set_tcp_nodelay,
};
use snowmelt_rpc::HostStream;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

use crate::peers::relay::{copy, wait_for_readers};

/// The smallest buffer of a socket of a stream, in bytes. The kernel gives twice as much.
const LEAST_BYTES: usize = 16 << 10;
/// The largest buffer of a socket of a stream, in bytes. The kernel gives twice as much.
const MAX_BYTES: usize = 128 << 10;

/// The buffers of all streams of one task that sends, in bytes.
const SENT_BYTES: usize = 8 << 20;

/// The bytes that are copied at a time.
const STEP: usize = 16 << 10;

/// Returns the buffer of each socket, in bytes, of a gang with `receivers` receivers.
pub(crate) fn buffer_bytes(receivers: usize) -> usize {
    bounded(SENT_BYTES / receivers.max(1))
}

/// Limits the buffer of a socket that another host asks for.
pub(super) fn bounded(bytes: usize) -> usize {
    bytes.clamp(LEAST_BYTES, MAX_BYTES)
}

/// Prepares a connection on the side that sends: it waits for as long as the other end does not
/// read.
pub(super) fn prepare_to_send(far: &HostStream, buffer: usize) -> std::io::Result<()> {
    wait_for_readers(far);
    // The end of a batch does not wait for more.
    set_tcp_nodelay(far, true)?;
    Ok(set_socket_send_buffer_size(far, buffer)?)
}

/// Prepares a connection on the side that receives. The kernel finds out that the other host has
/// vanished, because this side sends nothing that could wait for a reader.
pub(super) fn prepare_to_receive(far: &HostStream, buffer: usize) -> std::io::Result<()> {
    Ok(set_socket_recv_buffer_size(far, buffer)?)
}

/// Passes on the bytes that a task here sends, until either end is closed or the gang is over.
pub(super) async fn outward(mut near: UnixStream, mut far: HostStream, over: CancellationToken) {
    let (from, _) = near.split();
    let (closed, to) = far.split();
    pass_on(from, to, closed, over).await;
}

/// Passes on the bytes that a task here receives, until either end is closed or the gang is over.
pub(super) async fn inward(mut far: HostStream, mut near: UnixStream, over: CancellationToken) {
    let (from, _) = far.split();
    let (closed, to) = near.split();
    pass_on(from, to, closed, over).await;
}

async fn pass_on(
    from: impl AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin,
    closed: impl AsyncRead + Unpin,
    over: CancellationToken,
) {
    tokio::select! {
        copied = copy(from, to, STEP) => if let Err(error) = copied {
            tracing::debug!(%error, "a stream between hosts broke");
        },
        () = is_closed(closed) => {}
        () = over.cancelled() => {}
    }
}

/// Waits until nobody reads any more. The side that receives sends nothing: bytes from it are
/// against the protocol, and end the stream too.
async fn is_closed(mut from: impl AsyncRead + Unpin) {
    let mut byte = [0];
    // The connection breaks if it ends with rows that were not read.
    let _ = from.read(&mut byte).await;
}
