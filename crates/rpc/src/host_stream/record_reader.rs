//! The receiving side of a connection between hosts: bytes are passed on once their record is whole
//! and verified.

use std::io;
use std::net::IpAddr;
use std::task::{Context, Poll, ready};

use tokio::io::ReadBuf;
use tokio::net::TcpStream;

use super::record::{HEADER, MAX_RECORD, PREFACE, fits, length};
use crate::checksum_errors::Damaged;

/// The size of the buffer of a connection on which little arrives, in bytes.
const SMALL: usize = 4 << 10;

/// The protocol that the other side speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speech {
    /// The protocol is not known yet. The first bytes tell: records or, only if `may_be_plain`,
    /// something else.
    Unknown { may_be_plain: bool },
    /// Records.
    Records,
    /// HTTP without records.
    Plain,
    /// The protocol is broken: the other side sent something else.
    Broken,
}

/// The reader of records: the bytes that have arrived.
#[derive(Debug)]
pub(super) struct RecordReader {
    pub speech: Speech,
    from: Option<IpAddr>,
    buffer: Vec<u8>,
    /// The begin of the buffer's content: first come verified bytes up to `verified`, then bytes
    /// that are not verified yet, up to `end`.
    start: usize,
    verified: usize,
    end: usize,
    /// The number of the next record.
    number: u64,
}

impl RecordReader {
    pub fn new(speech: Speech, from: Option<IpAddr>) -> Self {
        Self { speech, from, buffer: Vec::new(), start: 0, verified: 0, end: 0, number: 0 }
    }

    /// Whether no bytes have arrived that were not passed on.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
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
        ready!(self.poll_verified(tcp, context))?;
        let given = to.remaining().min(self.verified - self.start);
        to.put_slice(&self.buffer[self.start..self.start + given]);
        self.start += given;
        Poll::Ready(Ok(()))
    }

    /// Waits until there are bytes to pass on, or the other side has ended.
    pub fn poll_verified(
        &mut self,
        tcp: &TcpStream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.start == self.verified {
            let Some(needed) = self.verify()? else { break };
            if self.is_empty() {
                (self.start, self.verified, self.end) = (0, 0, 0);
            }
            let is_ready = tcp.poll_read_ready(context)?;
            if is_ready.is_pending() {
                if self.is_empty() {
                    self.buffer = Vec::new();
                }
                return Poll::Pending;
            }
            self.make_room(needed);
            match tcp.try_read(&mut self.buffer[self.end..]) {
                Ok(0) if self.is_empty() => break,
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => self.end += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Verifies the next record. If it is not whole yet, returns its length in bytes as far as that
    /// is known.
    fn verify(&mut self) -> io::Result<Option<usize>> {
        let waiting = &self.buffer[self.start..self.end];
        match self.speech {
            Speech::Broken => return Err(io::ErrorKind::InvalidData.into()),
            Speech::Plain => {
                self.verified = self.end;
                return Ok(waiting.is_empty().then_some(1));
            }
            Speech::Unknown { may_be_plain } => match waiting.first_chunk() {
                Some(PREFACE) => {
                    self.speech = Speech::Records;
                    self.start += PREFACE.len();
                    self.verified = self.start;
                    return self.verify();
                }
                None if PREFACE.starts_with(waiting) => return Ok(Some(PREFACE.len())),
                _ if may_be_plain && waiting[0] != PREFACE[0] => {
                    self.speech = Speech::Plain;
                    return self.verify();
                }
                _ => {
                    self.speech = Speech::Broken;
                    let why = "the other side does not speak as hosts of a cluster do";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, why));
                }
            },
            Speech::Records => {}
        }
        let Some(header) = waiting.first_chunk::<HEADER>() else { return Ok(Some(HEADER)) };
        let Some(length) = length(self.number, header) else { return Err(self.damaged()) };
        let Some(bytes) = waiting.get(HEADER..HEADER + length) else {
            return Ok(Some(HEADER + length));
        };
        if !fits(header, bytes) {
            return Err(self.damaged());
        }
        self.start += HEADER;
        self.verified = self.start + length;
        self.number += 1;
        Ok(None)
    }

    fn damaged(&mut self) -> io::Error {
        self.speech = Speech::Broken;
        Damaged::seen(self.from)
    }

    /// Makes room for a record of `needed` bytes, some of which are in the buffer. The buffer grows
    /// with the amount that arrives at a time.
    fn make_room(&mut self, needed: usize) {
        let was_filled = self.end == self.buffer.len();
        if self.start > 0 && (was_filled || self.start + needed > self.buffer.len()) {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.verified, self.end) = (0, 0, self.end - self.start);
        }
        let grown = if was_filled { self.buffer.len() * 2 } else { self.buffer.len() };
        let size = grown.clamp(SMALL, HEADER + MAX_RECORD).max(needed);
        if size > self.buffer.len() {
            self.buffer.resize(size, 0);
        }
    }
}
