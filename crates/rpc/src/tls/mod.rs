//! A listener with TLS: its certificate and key, and connections whose handshake is part of their
//! first read.
//!
//! | part | file |
//! |---|---|
//! | the certificate, and what proves a name to an authority | `certificate` |
//! | connections and their handshakes | here |
//!
//! Invariants: nothing is served without TLS. A client that does not finish its handshake delays no
//! other one, and is disconnected after the time that a connection may be idle.

mod certificate;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::Accept;
use tokio_rustls::server::TlsStream;

use crate::Peer;
use crate::client::watch;
use crate::fair_queue::{TurnWaiter, Turns};
use crate::server::{AcceptedConnection, Listener, source};
use certificate::PROOF_PROTOCOL;
pub use certificate::{Certificate, ProofOfName, Validity};

/// Accepts connections over TLS.
pub struct TlsListener {
    listener: TcpListener,
    certificate: Certificate,
    /// The turns of handshakes to compute. Their number is limited, so that any number of clients
    /// leaves processors to requests. Sources alternate.
    handshakes: Arc<Turns>,
}

impl TlsListener {
    /// Serves the certificate on a listener.
    pub fn new(listener: TcpListener, certificate: &Certificate) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let handshakes = Turns::new((processors / 2).max(1));
        Self { listener, certificate: certificate.clone(), handshakes }
    }
}

impl Listener for TlsListener {
    type Stream = TlsConnection;

    async fn accept(&self) -> io::Result<AcceptedConnection<TlsConnection>> {
        let (stream, address) = self.listener.accept().await?;
        stream.set_nodelay(true)?;
        // A client whose host has vanished holds an instance for seconds and not for ever.
        watch(&stream)?;
        let address = source(address.ip());
        let handshake = Box::new(Handshake {
            accept: self.certificate.acceptor().accept(stream),
            waiter: TurnWaiter::new(Arc::clone(&self.handshakes), address),
        });
        Ok(AcceptedConnection {
            stream: TlsConnection::Handshake(handshake),
            peer: Peer::Remote,
            address: Some(address),
            user: None,
            certificate: None,
        })
    }
}

/// A handshake, and its turn to compute. It has no turn while it waits for its client.
pub struct Handshake {
    accept: Accept<TcpStream>,
    waiter: TurnWaiter,
}

impl Handshake {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<TlsStream<TcpStream>>> {
        let _turn = ready!(self.waiter.poll(context));
        Pin::new(&mut self.accept).poll(context)
    }
}

/// A connection during or after its handshake.
pub enum TlsConnection {
    /// The handshake has not ended.
    Handshake(Box<Handshake>),
    /// The handshake has ended.
    Open(Box<TlsStream<TcpStream>>),
    /// The handshake has failed.
    Failed,
}

impl TlsConnection {
    fn poll_open(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<&mut TlsStream<TcpStream>>> {
        if let Self::Handshake(handshake) = self {
            match ready!(handshake.poll(context)) {
                Ok(stream) if stream.get_ref().1.alpn_protocol() == Some(PROOF_PROTOCOL) => {
                    // An authority has seen what it asked for, and sends nothing more.
                    *self = Self::Failed;
                    return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                }
                Ok(stream) => *self = Self::Open(Box::new(stream)),
                Err(error) => {
                    *self = Self::Failed;
                    return Poll::Ready(Err(error));
                }
            }
        }
        Poll::Ready(match self {
            Self::Open(stream) => Ok(stream),
            Self::Handshake(_) | Self::Failed => Err(io::ErrorKind::BrokenPipe.into()),
        })
    }
}

impl AsyncRead for TlsConnection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = ready!(self.get_mut().poll_open(context))?;
        Pin::new(stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for TlsConnection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let stream = ready!(self.get_mut().poll_open(context))?;
        Pin::new(stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Open(stream) => Pin::new(stream).poll_flush(context),
            // Nothing was written.
            Self::Handshake(_) | Self::Failed => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Open(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Handshake(_) | Self::Failed => Poll::Ready(Ok(())),
        }
    }
}

#[cfg(test)]
mod tests;
