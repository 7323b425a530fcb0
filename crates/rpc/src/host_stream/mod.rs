//! A connection between two hosts of a cluster, all of whose bytes are verified.
//!
//! Everything that hosts say to each other passes here: requests and answers over HTTP, and the
//! protocols on connections that have left HTTP. With certificates it is TLS ([`tls_link`]). Without
//! encryption both directions are divided into records with checksums (CRC-32C). A wrong record ends the connection as a lost one: nothing of the record is
//! passed on, and the work that was under way on the connection is done again as after any other
//! loss.
//!
//! The side that accepts finds out from the first byte whether the other side speaks in records.
//! HTTP without them is served as well, for tools; hosts always use records.

mod record;
mod record_reader;
mod record_writer;
mod relay;
mod tls_buffers;
mod tls_link;
mod tls_session;

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use rustix::net::{Shutdown, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use record_reader::{RecordReader, Speech};
use record_writer::RecordWriter;
use tls_link::TlsLink;
use tls_session::TlsSession;

use crate::membership::{Credential, Meant, PeerSlot};

/// A connection to another host.
#[derive(Debug)]
pub struct HostStream {
    tcp: Arc<TcpStream>,
    carrier: Carrier,
}

/// The form in which bytes are carried.
#[derive(Debug)]
enum Carrier {
    Records { reading: RecordReader, writing: RecordWriter },
    // Both directions of a connection need it, each for a moment.
    Tls(Box<Mutex<TlsLink>>),
}

/// A connection that belongs to no runtime, on its way into another one.
#[derive(Debug)]
pub struct Detached {
    tcp: std::net::TcpStream,
    carrier: Carrier,
}

/// The direction in which the other host speaks.
#[derive(Debug)]
pub struct FromHost<'s> {
    tcp: &'s TcpStream,
    from: From<'s>,
}

#[derive(Debug)]
enum From<'s> {
    Records(&'s mut RecordReader),
    Tls(&'s Mutex<TlsLink>),
}

/// The direction to the other host.
#[derive(Debug)]
pub struct ToHost<'s> {
    tcp: &'s TcpStream,
    to: To<'s>,
}

#[derive(Debug)]
enum To<'s> {
    Records(&'s mut RecordWriter),
    /// Answers are sent without records: an answer has the form of the question.
    Plain,
    Tls(&'s Mutex<TlsLink>),
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
        let reading = RecordReader::new(speech, from);
        let carrier = Carrier::Records { reading, writing: RecordWriter::new() };
        Self { tcp: Arc::new(tcp), carrier }
    }

    /// Wraps a connection that this host has opened to another process of the cluster. Returns once
    /// that has shown its certificate, unless nothing is encrypted.
    ///
    /// # Errors
    /// The connection breaks, or the other end is not the process that is meant.
    pub async fn connected(
        tcp: TcpStream,
        meant: &Meant,
        credential: &Credential,
    ) -> io::Result<Self> {
        let Some(session) = credential.connect(meant)? else { return Ok(Self::opened(tcp)) };
        let tcp = Arc::new(tcp);
        let session = TlsSession::Client(session);
        let mut link = TlsLink::new(session, credential.clone(), PeerSlot::default());
        poll_fn(|context| link.poll_handshake(&tcp, context)).await?;
        link.watch(&tcp)?;
        Ok(Self { tcp, carrier: Carrier::Tls(Box::new(Mutex::new(link))) })
    }

    /// Wraps a connection that another process of the cluster has opened. The certificate of that
    /// process is in the slot once the first bytes are read.
    ///
    /// # Errors
    /// The TLS library refuses the settings.
    pub fn received(tcp: TcpStream, credential: &Credential, peer: &PeerSlot) -> io::Result<Self> {
        let Some(session) = credential.accept()? else { return Ok(Self::accepted(tcp)) };
        let tcp = Arc::new(tcp);
        let session = TlsSession::Server(session);
        let link = TlsLink::new(session, credential.clone(), peer.clone());
        link.watch(&tcp)?;
        Ok(Self { tcp, carrier: Carrier::Tls(Box::new(Mutex::new(link))) })
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
        let Self { tcp, carrier } = self;
        match carrier {
            Carrier::Records { reading, .. } => {
                poll_fn(|context| reading.poll_verified(tcp, context)).await
            }
            Carrier::Tls(link) => poll_fn(|context| held(link).poll_decrypted(tcp, context)).await,
        }
    }

    /// Splits the connection into its two directions.
    pub fn split(&mut self) -> (FromHost<'_>, ToHost<'_>) {
        let Self { tcp, carrier } = self;
        let tcp = &**tcp;
        match carrier {
            Carrier::Records { reading, writing } => {
                let to = if is_plain(reading) { To::Plain } else { To::Records(writing) };
                (FromHost { tcp, from: From::Records(reading) }, ToHost { tcp, to })
            }
            Carrier::Tls(link) => {
                (FromHost { tcp, from: From::Tls(link) }, ToHost { tcp, to: To::Tls(link) })
            }
        }
    }

    /// Takes the connection out of the runtime.
    ///
    /// # Errors
    /// The runtime does not give the connection up.
    pub fn detach(mut self) -> io::Result<Detached> {
        let carrier = self.take();
        let tcp = Arc::clone(&self.tcp);
        drop(self);
        Ok(Detached { tcp: alone(tcp)?.into_std()?, carrier })
    }

    /// Whether TLS carries the bytes.
    pub fn is_encrypted(&self) -> bool {
        matches!(self.carrier, Carrier::Tls(_))
    }

    /// Returns the TCP connection alone, for a protocol that verifies its data itself. That
    /// protocol begins where no other data is on its way.
    ///
    /// # Errors
    /// Fails if the other host has sent bytes before its turn, and if the connection is encrypted.
    pub fn into_unverified(self) -> io::Result<TcpStream> {
        let why = match &self.carrier {
            Carrier::Records { reading, .. } if reading.is_empty() => {
                let tcp = Arc::clone(&self.tcp);
                drop(self);
                return alone(tcp);
            }
            Carrier::Records { .. } => {
                "the other side of a connection spoke before it was its turn"
            }
            Carrier::Tls(_) => "an encrypted connection is more than its socket",
        };
        Err(io::Error::new(io::ErrorKind::InvalidData, why))
    }

    fn take(&mut self) -> Carrier {
        let reading = RecordReader::new(Speech::Broken, None);
        let nothing = Carrier::Records { reading, writing: RecordWriter::new() };
        std::mem::replace(&mut self.carrier, nothing)
    }

    /// Whether no bytes have arrived that were not taken.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.carrier {
            Carrier::Records { reading, .. } => reading.is_empty(),
            Carrier::Tls(link) => held(link).is_empty(),
        }
    }
}

impl Detached {
    /// Puts the connection into the runtime of the caller.
    ///
    /// # Errors
    /// The runtime does not take the connection.
    pub fn attach(self) -> io::Result<HostStream> {
        let Self { tcp, carrier } = self;
        let tcp = Arc::new(TcpStream::from_std(tcp)?);
        if let Carrier::Tls(link) = &carrier {
            held(link).watch(&tcp)?;
        }
        Ok(HostStream { tcp, carrier })
    }
}

/// Access to the options of the socket. Data that is read or written past this type is not
/// verified.
impl AsFd for HostStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}

/// Tells the other end that nothing follows, unless the socket takes nothing now.
impl Drop for HostStream {
    fn drop(&mut self) {
        if let Carrier::Tls(link) = &self.carrier {
            held(link).close(&self.tcp);
        }
    }
}

fn held(link: &Mutex<TlsLink>) -> MutexGuard<'_, TlsLink> {
    link.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a socket that is in nobody else's hands: those of a removed host are for a moment.
fn alone(tcp: Arc<TcpStream>) -> io::Result<TcpStream> {
    Arc::try_unwrap(tcp).map_err(|_| io::Error::other("the host of a connection was removed"))
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
        let Self { tcp, from } = self.get_mut();
        match from {
            From::Records(reading) => reading.poll_read(tcp, context, to),
            From::Tls(link) => held(link).poll_read(tcp, context, to),
        }
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
        let Self { tcp, to } = self.get_mut();
        match to {
            To::Records(writing) => return writing.poll_write(tcp, context, slices),
            To::Tls(link) => return held(link).poll_write(tcp, context, slices),
            To::Plain => {}
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

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.to {
            To::Tls(link) => held(link).poll_shutdown(self.tcp, context),
            To::Records(_) | To::Plain => Poll::Ready(Ok(shutdown(self.tcp, Shutdown::Write)?)),
        }
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
#[cfg(test)]
mod tls_tests;
