//! The connection of a client of the lease service, which may wait for long before it has an
//! instance.
//!
//! Invariants: the end of a client that waits is noticed at once. What the client sends meanwhile
//! is read later, in order.

use std::io::Result;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::BufMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// The most bytes that are kept of what a client sends while it waits: clients wait for the answer
/// first. A client that sends more is given up, because its end could not be noticed.
const MAX_KEPT: usize = 16 << 10;

/// A connection, with the bytes that were read from it too early.
#[derive(Debug)]
pub(super) struct LeaseConnection<S> {
    stream: S,
    kept: Vec<u8>,
}

impl<S: AsyncRead + Unpin> LeaseConnection<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, kept: Vec::new() }
    }

    /// Returns the connection, to send on it.
    pub fn sender(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Waits until the client has closed its side, or has sent too much. Dropping the future loses
    /// nothing.
    pub async fn closed(&mut self) {
        let Self { stream, kept } = self;
        while kept.len() < MAX_KEPT {
            let left = MAX_KEPT - kept.len();
            let read = stream.read_buf(&mut (&mut *kept).limit(left)).await;
            if !matches!(read, Ok(count) if count > 0) {
                return;
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LeaseConnection<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let Self { stream, kept } = self.get_mut();
        if kept.is_empty() {
            return Pin::new(stream).poll_read(context, buffer);
        }
        let count = kept.len().min(buffer.remaining());
        buffer.put_slice(&kept[..count]);
        kept.drain(..count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LeaseConnection<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn the_end_of_a_client_is_noticed_and_what_it_has_sent_is_read() {
        let (mut client, stream) = duplex(1 << 20);
        let mut watched = LeaseConnection::new(stream);
        let mut sent = Vec::new();
        for part in [&[1; 10][..], &[2; 1000]] {
            assert!(watched.closed().now_or_never().is_none());
            client.write_all(part).await.unwrap();
            sent.extend(part);
        }
        assert!(watched.closed().now_or_never().is_none());
        // A part of it, and what came later than it.
        let mut first = [0; 500];
        watched.read_exact(&mut first).await.unwrap();
        client.write_all(&[3; 10]).await.unwrap();
        sent.extend([3; 10]);
        watched.write_all(b"answer").await.unwrap();
        assert!(watched.closed().now_or_never().is_none());
        drop(client);
        watched.closed().await;
        let mut got = first.to_vec();
        watched.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, sent);
    }

    #[tokio::test]
    async fn no_more_than_a_bound_is_kept() {
        let (mut client, stream) = duplex(1 << 20);
        let mut watched = LeaseConnection::new(stream);
        client.write_all(&vec![7; 3 * MAX_KEPT]).await.unwrap();
        drop(client);
        assert!(watched.closed().now_or_never().is_some(), "it is not waited for");
        assert_eq!(watched.kept.len(), MAX_KEPT);
        let mut got = Vec::new();
        watched.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, vec![7; 3 * MAX_KEPT]);
    }
}
