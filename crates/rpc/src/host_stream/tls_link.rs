//! TLS on a connection between hosts.
//!
//! TLS verifies all bytes, so no records with checksums are needed.
//!
//! Invariant: a write is done when all of it is sent, so nothing has to be flushed. A caller that
//! waits for a write passes the same bytes again.

use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::net::{Shutdown, shutdown};
use rustls::{Connection, IoState};
use tokio::io::ReadBuf;
use tokio::net::TcpStream;

use crate::checksum_errors::Damaged;
use crate::membership::{Credential, PeerSlot};

/// The most encrypted bytes that are read at once.
const PIECE: usize = 64 << 10;

/// The encryption of a connection.
pub(super) struct TlsLink {
    session: Connection,
    credential: Credential,
    peer: PeerSlot,
    /// Encrypted bytes that have arrived, from `start` on.
    arrived: Vec<u8>,
    start: usize,
    /// The number of decrypted bytes that were not passed on.
    decrypted: usize,
    has_ended: bool,
    /// The number of bytes of the write that is under way.
    writing: Option<usize>,
    is_shut: bool,
}

impl std::fmt::Debug for TlsLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsLink")
    }
}

/// Sends to a socket as far as it takes bytes.
struct Outlet<'t>(&'t TcpStream);

impl Write for Outlet<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TlsLink {
    pub fn new(session: Connection, credential: Credential, peer: PeerSlot) -> Self {
        Self {
            session,
            credential,
            peer,
            arrived: Vec::new(),
            start: 0,
            decrypted: 0,
            has_ended: false,
            writing: None,
            is_shut: false,
        }
    }

    /// Keeps the connection in view, to end it when its host is removed.
    pub fn watch(&self, tcp: &Arc<TcpStream>) -> io::Result<()> {
        self.credential.watch(&self.peer, tcp)
    }

    /// Whether no bytes have arrived that were not passed on.
    pub fn is_empty(&self) -> bool {
        self.decrypted == 0
    }

    /// Waits for the end of the handshake.
    pub fn poll_handshake(
        &mut self,
        tcp: &TcpStream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_send(tcp, context))?;
            if !self.session.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_receive(tcp, context))?;
            if self.has_ended {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Waits until there are bytes to pass on, or the other side has ended.
    pub fn poll_decrypted(
        &mut self,
        tcp: &TcpStream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.decrypted == 0 && !self.has_ended {
            // Parts of the handshake. The other side takes them while nobody writes here.
            if let Poll::Ready(Err(error)) = self.poll_send(tcp, context) {
                return Poll::Ready(Err(error));
            }
            ready!(self.poll_receive(tcp, context))?;
        }
        Poll::Ready(Ok(()))
    }

    pub fn poll_read(
        &mut self,
        tcp: &TcpStream,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if to.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_decrypted(tcp, context))?;
        while self.decrypted > 0 && to.remaining() > 0 {
            let read = self.session.reader().read(to.initialize_unfilled())?;
            to.advance(read);
            self.decrypted = self.decrypted.saturating_sub(read);
            if read == 0 {
                self.decrypted = 0;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Decrypts some bytes that have arrived, or waits for more.
    fn poll_receive(&mut self, tcp: &TcpStream, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.start == self.arrived.len() {
            self.start = 0;
            self.arrived.clear();
            let is_ready = tcp.poll_read_ready(context)?;
            if is_ready.is_pending() {
                // A connection that waits holds no buffer.
                self.arrived = Vec::new();
                return Poll::Pending;
            }
            self.arrived.resize(PIECE, 0);
            let read = tcp.try_read(&mut self.arrived);
            self.arrived.truncate(*read.as_ref().unwrap_or(&0));
            match read {
                // Its end was not announced: the process ended, or somebody cut the connection.
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Poll::Ready(Ok(()));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        self.start += self.session.read_tls(&mut &self.arrived[self.start..])?;
        match self.session.process_new_packets() {
            Ok(state) => {
                self.heard(&state);
                Poll::Ready(Ok(()))
            }
            Err(error) => {
                // The other side learns why, if it still takes a byte.
                let _ = self.session.write_tls(&mut Outlet(tcp));
                Poll::Ready(Err(match error {
                    rustls::Error::DecryptError => {
                        let from = tcp.peer_addr().ok();
                        Damaged::seen(from.map(|from| from.ip().to_canonical()))
                    }
                    error => io::Error::new(io::ErrorKind::InvalidData, error),
                }))
            }
        }
    }

    fn heard(&mut self, state: &IoState) {
        self.decrypted = state.plaintext_bytes_to_read();
        self.has_ended = state.peer_has_closed();
        if !self.session.is_handshaking()
            && self.peer.certificate().is_none()
            && let Some([certificate, ..]) = self.session.peer_certificates()
        {
            self.peer.set(certificate);
        }
    }

    /// Sends what is encrypted.
    fn poll_send(&mut self, tcp: &TcpStream, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            ready!(tcp.poll_write_ready(context))?;
            match self.session.write_tls(&mut Outlet(tcp)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Sends some of these bytes. Returns their number.
    pub fn poll_write(
        &mut self,
        tcp: &TcpStream,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let offered: usize = slices.iter().map(|slice| slice.len()).sum();
        if offered == 0 {
            return Poll::Ready(Ok(0));
        }
        let writing = match self.writing {
            Some(writing) => writing,
            None => {
                let writing = self.session.writer().write_vectored(slices)?;
                *self.writing.insert(writing)
            }
        };
        if offered < writing {
            let why = "a write to another host was given up in the middle";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        ready!(self.poll_send(tcp, context))?;
        self.writing = None;
        Poll::Ready(Ok(writing))
    }

    /// Announces the end of what is sent.
    pub fn poll_shutdown(
        &mut self,
        tcp: &TcpStream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.is_shut {
            self.session.send_close_notify();
            self.is_shut = true;
        }
        ready!(self.poll_send(tcp, context))?;
        Poll::Ready(Ok(shutdown(tcp, Shutdown::Write)?))
    }

    /// Announces the end of a connection that is dropped, if the socket takes it at once.
    pub fn close(&mut self, tcp: &TcpStream) {
        if !self.is_shut && self.writing.is_none() && !self.session.is_handshaking() {
            self.session.send_close_notify();
            self.is_shut = true;
            while self.session.wants_write() {
                if self.session.write_tls(&mut Outlet(tcp)).is_err() {
                    return;
                }
            }
        }
    }
}
