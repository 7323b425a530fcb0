//! TLS on a connection between hosts.
//!
//! TLS verifies all bytes, so no records with checksums are needed.
//!
//! Invariant: a write is done when all of it is sent, so nothing has to be flushed. A caller that
//! waits for a write passes the same bytes again.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::net::{Shutdown, shutdown};
use tokio::io::ReadBuf;
use tokio::net::TcpStream;

use super::tls_buffers::{Arrived, Decrypted, Outgoing};
use super::tls_session::{MAX_RECORD, MAX_WRITE, Step, TlsSession, Wish};
use crate::checksum_errors::Damaged;
use crate::membership::{Credential, PeerSlot};

/// The encryption of a connection.
pub(super) struct TlsLink {
    session: TlsSession,
    credential: Credential,
    peer: PeerSlot,
    arrived: Arrived,
    decrypted: Decrypted,
    outgoing: Outgoing,
    /// The error with which the session has ended.
    broken: Option<rustls::Error>,
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

impl TlsLink {
    pub fn new(session: TlsSession, credential: Credential, peer: PeerSlot) -> Self {
        Self {
            session,
            credential,
            peer,
            arrived: Arrived::default(),
            decrypted: Decrypted::default(),
            outgoing: Outgoing::default(),
            broken: None,
            has_ended: false,
            writing: None,
            is_shut: false,
        }
    }

    /// Keeps the connection in view, to end it when its host is removed.
    pub fn watch(&self, tcp: &Arc<TcpStream>) -> io::Result<()> {
        self.credential.watch(&self.peer, tcp)
    }

    /// Whether no bytes have arrived that were decrypted and not passed on.
    pub fn is_empty(&self) -> bool {
        self.decrypted.is_empty()
    }

    /// Waits for the end of the handshake.
    pub fn poll_handshake(
        &mut self,
        tcp: &TcpStream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.step(tcp, Wish::Nothing, None)? {
                Step::Taken | Step::Granted(_) => continue,
                Step::PeerEnded | Step::Ended => {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                Step::Waits => {}
            }
            ready!(self.poll_send(tcp, context))?;
            if !self.session.state().is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_receive(tcp, context))?;
        }
    }

    /// Waits until there are bytes to pass on, or the other side has ended.
    pub fn poll_decrypted(
        &mut self,
        tcp: &TcpStream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.decrypted.is_empty() && !self.has_ended {
            if self.step_to(tcp, None)? {
                ready!(self.poll_more(tcp, context))?;
            }
        }
        Poll::Ready(Ok(()))
    }

    pub fn poll_read(
        &mut self,
        tcp: &TcpStream,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = to.filled().len();
        self.decrypted.give(to);
        loop {
            let has_some = to.filled().len() > before;
            // A record that does not fit is copied once more.
            let is_full = to.remaining() < if has_some { MAX_RECORD } else { 1 };
            if is_full || self.has_ended {
                return Poll::Ready(Ok(()));
            }
            match self.step_to(tcp, Some(to)) {
                Ok(false) => {}
                // An error comes again with the next read.
                _ if to.filled().len() > before => return Poll::Ready(Ok(())),
                Ok(true) => ready!(self.poll_more(tcp, context))?,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Takes a step of reading. Returns whether it needs more bytes of the other side.
    fn step_to(&mut self, tcp: &TcpStream, to: Option<&mut ReadBuf<'_>>) -> io::Result<bool> {
        match self.step(tcp, Wish::Nothing, to)? {
            Step::Taken | Step::Granted(_) => Ok(false),
            Step::Waits => Ok(true),
            Step::PeerEnded | Step::Ended => {
                self.has_ended = true;
                Ok(false)
            }
        }
    }

    fn poll_more(&mut self, tcp: &TcpStream, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Parts of the handshake. A write that is under way sends them, and has to be woken itself.
        if self.writing.is_none()
            && let Poll::Ready(Err(error)) = self.poll_send(tcp, context)
        {
            return Poll::Ready(Err(error));
        }
        self.poll_receive(tcp, context)
    }

    /// Takes a step of the session. What is decrypted comes into `to` as far as it has room.
    fn step(
        &mut self,
        tcp: &TcpStream,
        wish: Wish<'_>,
        mut to: Option<&mut ReadBuf<'_>>,
    ) -> io::Result<Step> {
        if let Some(error) = &self.broken {
            return Err(failed(error, tcp, false));
        }
        let Self { session, arrived, decrypted, outgoing, .. } = self;
        let step = session.step(arrived, outgoing, wish, |bytes| {
            let room = to.as_ref().map_or(0, |to| to.remaining());
            let (direct, rest) = bytes.split_at(room.min(bytes.len()));
            if let Some(to) = &mut to {
                to.put_slice(direct);
            }
            decrypted.keep(rest);
        });
        self.know_peer();
        step.map_err(|error| {
            // The other side learns why, if it still takes a byte.
            let Self { session, arrived, outgoing, .. } = self;
            if session.step(arrived, outgoing, Wish::Nothing, |_| {}).is_ok() {
                let _ = tcp.try_write(outgoing.unsent());
            }
            failed(self.broken.insert(error), tcp, true)
        })
    }

    fn know_peer(&self) {
        let state = self.session.state();
        if self.peer.certificate().is_none()
            && !state.is_handshaking()
            && let Some([certificate, ..]) = state.peer_certificates()
        {
            self.peer.set(certificate);
        }
    }

    /// Waits for encrypted bytes.
    fn poll_receive(&mut self, tcp: &TcpStream, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let is_ready = tcp.poll_read_ready(context)?;
            if is_ready.is_pending() {
                self.arrived.rest();
                return Poll::Pending;
            }
            match tcp.try_read(self.arrived.room()?) {
                // Its end was not announced: the process ended, or somebody cut the connection.
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => {
                    self.arrived.add(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Sends what is encrypted.
    fn poll_send(&mut self, tcp: &TcpStream, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outgoing.is_empty() {
            ready!(tcp.poll_write_ready(context))?;
            match tcp.try_write(self.outgoing.unsent()) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(count) => self.outgoing.sent(count),
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
        if self.session.state().is_handshaking() {
            ready!(self.poll_handshake(tcp, context))?;
        }
        let writing = match self.writing {
            Some(writing) => writing,
            None => {
                let writing = self.grant(tcp, Wish::Write(slices))?;
                *self.writing.insert(writing)
            }
        };
        if offered < writing {
            let why = "a write to another host was given up in the middle";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        ready!(self.poll_send(tcp, context))?;
        self.writing = None;
        if writing < MAX_WRITE / 2 {
            self.outgoing.rest();
        }
        Poll::Ready(Ok(writing))
    }

    /// Has the session do what is wished for. What arrived before is decrypted on the way: at most
    /// one buffer of it.
    fn grant(&mut self, tcp: &TcpStream, wish: Wish<'_>) -> io::Result<usize> {
        if self.is_shut {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        loop {
            match self.step(tcp, wish, None)? {
                Step::Granted(count) => return Ok(count),
                Step::Taken => {}
                Step::PeerEnded => self.has_ended = true,
                Step::Waits | Step::Ended => return Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    }

    /// Announces the end of what is sent.
    pub fn poll_shutdown(
        &mut self,
        tcp: &TcpStream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.announce_end(tcp);
        ready!(self.poll_send(tcp, context))?;
        Poll::Ready(Ok(shutdown(tcp, Shutdown::Write)?))
    }

    /// Announces the end of a connection that is dropped, if the socket takes it at once.
    pub fn close(&mut self, tcp: &TcpStream) {
        if self.writing.is_none() {
            self.announce_end(tcp);
            while !self.outgoing.is_empty() {
                match tcp.try_write(self.outgoing.unsent()) {
                    Ok(count @ 1..) => self.outgoing.sent(count),
                    _ => return,
                }
            }
        }
    }

    fn announce_end(&mut self, tcp: &TcpStream) {
        // A session that is broken has told why.
        if !self.is_shut && self.broken.is_none() && !self.session.state().is_handshaking() {
            let _ = self.grant(tcp, Wish::Close);
            self.is_shut = true;
        }
    }
}

/// Returns the error of a session that is broken; `is_new` counts it if bytes were damaged.
fn failed(error: &rustls::Error, tcp: &TcpStream, is_new: bool) -> io::Error {
    let from = tcp.peer_addr().ok().map(|from| from.ip().to_canonical());
    match error {
        rustls::Error::DecryptError if is_new => Damaged::seen(from),
        rustls::Error::DecryptError => io::Error::new(io::ErrorKind::InvalidData, Damaged { from }),
        error => io::Error::new(io::ErrorKind::InvalidData, error.clone()),
    }
}
