//! A connection between two hosts of a cluster, all of whose bytes are verified.
//!
//! Everything that hosts say to each other passes here: requests and answers over HTTP, and the
//! protocols on connections that have left HTTP. Both directions are divided into records with
//! checksums (CRC-32C). A wrong record ends the connection as a lost one: nothing of the record is
//! passed on, and the work that was under way on the connection is done again as after any other
//! loss.
//!
//! The side that accepts finds out from the first byte whether the other side speaks in records.
//! HTTP without them is served as well, for tools; hosts always use records.

mod record;
mod record_reader;
mod record_writer;

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::net::{Shutdown, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use record_reader::{RecordReader, Speech};
use record_writer::RecordWriter;

/// A connection to another host.
#[derive(Debug)]
pub struct HostStream {
    tcp: TcpStream,
    reading: RecordReader,
    writing: RecordWriter,
}

/// A connection that belongs to no runtime, on its way into another one.
#[derive(Debug)]
pub struct Detached {
    tcp: std::net::TcpStream,
    reading: RecordReader,
    writing: RecordWriter,
}

/// The direction in which the other host speaks.
#[derive(Debug)]
pub struct FromHost<'s> {
    tcp: &'s TcpStream,
    reading: &'s mut RecordReader,
}

/// The direction to the other host.
#[derive(Debug)]
pub struct ToHost<'s> {
    tcp: &'s TcpStream,
    writing: &'s mut RecordWriter,
    is_plain: bool,
}

impl HostStream {
    /// Wraps a connection that this host has opened.
    pub fn opened(tcp: TcpStream) -> Self {
        Self::new(tcp, Speech::Unknown { may_be_plain: false })
    }

    /// Wraps a connection that another host has opened. The other host speaks first.
    pub fn accepted(tcp: TcpStream) -> Self {
        Self::new(tcp, Speech::Unknown { may_be_plain: true })
    }

    fn new(tcp: TcpStream, speech: Speech) -> Self {
        let from = tcp.peer_addr().ok().map(|address| address.ip().to_canonical());
        Self { tcp, reading: RecordReader::new(speech, from), writing: RecordWriter::new() }
    }

    /// The address of the other end.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.peer_addr()
    }

    /// Waits until the other host has said something, or has ended. No bytes are taken.
    ///
    /// # Errors
    /// The connection breaks.
    pub async fn spoken_to(&mut self) -> io::Result<()> {
        poll_fn(|context| self.reading.poll_verified(&self.tcp, context)).await
    }

    /// Splits the connection into its two directions.
    pub fn split(&mut self) -> (FromHost<'_>, ToHost<'_>) {
        let Self { tcp, reading, writing } = self;
        let is_plain = is_plain(reading);
        (FromHost { tcp, reading }, ToHost { tcp, writing, is_plain })
    }

    /// Takes the connection out of the runtime.
    ///
    /// # Errors
    /// The runtime does not give the connection up.
    pub fn detach(self) -> io::Result<Detached> {
        let Self { tcp, reading, writing } = self;
        Ok(Detached { tcp: tcp.into_std()?, reading, writing })
    }

    /// Returns the TCP connection alone, for a protocol that verifies its data itself. That
    /// protocol begins where no other data is on its way.
    ///
    /// # Errors
    /// Fails if the other host has sent bytes before its turn.
    pub fn into_unverified(self) -> io::Result<TcpStream> {
        if self.reading.is_empty() {
            return Ok(self.tcp);
        }
        let why = "the other side of a connection spoke before it was its turn";
        Err(io::Error::new(io::ErrorKind::InvalidData, why))
    }

    /// Whether no bytes have arrived that were not taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.reading.is_empty()
    }
}

impl Detached {
    /// Puts the connection into the runtime of the caller.
    ///
    /// # Errors
    /// The runtime does not take the connection.
    pub fn attach(self) -> io::Result<HostStream> {
        let Self { tcp, reading, writing } = self;
        Ok(HostStream { tcp: TcpStream::from_std(tcp)?, reading, writing })
    }
}

/// Access to the options of the socket. Data that is read or written past this type is not
/// verified.
impl AsFd for HostStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}

/// Whether answers are sent without records: an answer has the form of the question.
fn is_plain(reading: &RecordReader) -> bool {
    matches!(reading.speech, Speech::Plain | Speech::Unknown { may_be_plain: true })
}

impl AsyncRead for FromHost<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { tcp, reading } = self.get_mut();
        reading.poll_read(tcp, context, to)
    }
}

impl AsyncWrite for ToHost<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self { tcp, writing, is_plain } = self.get_mut();
        if !*is_plain {
            return writing.poll_write(tcp, context, slices);
        }
        loop {
            std::task::ready!(tcp.poll_write_ready(context))?;
            match tcp.try_write_vectored(slices) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(shutdown(self.tcp, Shutdown::Write)?))
    }
}

impl AsyncRead for HostStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().split().0).poll_read(context, to)
    }
}

impl AsyncWrite for HostStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().split().1).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().split().1).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().split().1).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().split().1).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
