//! A connection to an instance that wakes its task on readability only.
//!
//! Why not tokio's own stream: it also becomes ready whenever the other side has read, which wakes
//! a thread of the node in the middle of each call for no use, often on the processor that has just
//! begun with the call.

use std::io;
use std::os::unix::net::UnixStream as BlockingStream;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, send, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::Receiver;

/// A connection to an instance. A write that the socket buffer cannot take turns the connection
/// into an ordinary stream.
#[derive(Debug)]
pub(crate) struct ReadableStream(State);

#[derive(Debug)]
enum State {
    /// The connection as the reading end of a pipe, which in tokio wakes on readability only,
    /// whatever kind of descriptor it has.
    Reading(Receiver),
    Both(UnixStream),
    /// The conversion into an ordinary stream failed.
    Lost,
}

impl ReadableStream {
    pub fn new(stream: BlockingStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self(State::Reading(Receiver::from_owned_fd_unchecked(stream.into())?)))
    }

    /// Returns the socket itself, in blocking mode.
    pub fn into_blocking(self) -> io::Result<BlockingStream> {
        let stream = match self.0 {
            State::Reading(stream) => stream.into_nonblocking_fd()?.into(),
            State::Both(stream) => stream.into_std()?,
            State::Lost => return Err(io::ErrorKind::NotConnected.into()),
        };
        stream.set_nonblocking(false)?;
        Ok(stream)
    }

    /// Turns the connection into an ordinary stream, which wakes on writability too.
    fn widen(&mut self) -> io::Result<()> {
        self.0 = match std::mem::replace(&mut self.0, State::Lost) {
            State::Reading(stream) => {
                State::Both(UnixStream::from_std(stream.into_nonblocking_fd()?.into())?)
            }
            other => other,
        };
        Ok(())
    }
}

impl AsyncRead for ReadableStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            State::Both(stream) => Pin::new(stream).poll_read(context, buffer),
            State::Lost => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
            State::Reading(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for ReadableStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let State::Reading(stream) = &this.0 {
            match send(stream, bytes, SendFlags::NOSIGNAL) {
                Err(Errno::AGAIN) => this.widen()?,
                Err(error) => return Poll::Ready(Err(error.into())),
                Ok(written) => return Poll::Ready(Ok(written)),
            }
        }
        match &mut this.0 {
            State::Both(stream) => Pin::new(stream).poll_write(context, bytes),
            _ => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A socket keeps nothing back.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            State::Both(stream) => Pin::new(stream).poll_shutdown(context),
            State::Reading(stream) => {
                Poll::Ready(shutdown(stream, Shutdown::Write).map_err(io::Error::from))
            }
            State::Lost => Poll::Ready(Ok(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Wake, Waker};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn short_and_long_messages_go_both_ways() {
        let (near, far) = BlockingStream::pair().unwrap();
        let mut near = ReadableStream::new(near).unwrap();
        let echo = std::thread::spawn(move || {
            let mut far = far;
            loop {
                let mut length = [0; 4];
                if far.read_exact(&mut length).is_err() {
                    return;
                }
                let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
                far.read_exact(&mut bytes).unwrap();
                far.write_all(&bytes).unwrap();
            }
        });
        // Far more than a socket holds, and short ones before and after it.
        for length in [1, 1000, 8 << 20, 10] {
            let sent: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            near.write_all(&(length as u32).to_le_bytes()).await.unwrap();
            near.write_all(&sent).await.unwrap();
            let mut back = vec![0; length];
            near.read_exact(&mut back).await.unwrap();
            assert!(back == sent);
        }
        near.shutdown().await.unwrap();
        echo.join().unwrap();
        assert_eq!(near.read(&mut [0; 1]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_read_of_the_other_side_wakes_no_task() {
        let (near, mut far) = BlockingStream::pair().unwrap();
        let mut near = ReadableStream::new(near).unwrap();
        near.write_all(b"ask").await.unwrap();
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut said = [0; 6];
        let mut reading = pin!(near.read_exact(&mut said));
        let mut poll = || reading.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(poll().is_pending());
        far.read_exact(&mut [0; 3]).unwrap();
        turn().await;
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        far.write_all(b"answer").unwrap();
        turn().await;
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(poll().is_ready());
        let blocking = near.into_blocking().unwrap();
        drop(far);
        assert_eq!((&blocking).read(&mut [0; 1]).unwrap(), 0);
        assert_eq!(&said, b"answer");
    }

    #[derive(Default)]
    struct Wakes(AtomicU32);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lets the runtime process the events of the kernel.
    async fn turn() {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }

    #[tokio::test]
    async fn the_end_of_the_other_side_is_reported() {
        let (near, far) = BlockingStream::pair().unwrap();
        let mut near = ReadableStream::new(near).unwrap();
        let reading = async { near.read(&mut [0; 1]).await.unwrap() };
        let (read, ()) = tokio::join!(reading, async { drop(far) });
        assert_eq!(read, 0);
        assert!(near.write_all(b"x").await.is_err());
    }
}
