//! The sending side of a connection between hosts, in records.
//!
//! Invariant: a write is done when its record is sent as a whole, so nothing has to be flushed. A
//! caller that waits for a write passes the same bytes again, as [`AsyncWriteExt::write_all`] does
//! and HTTP. If a write is given up in the middle of its record, nothing can be sent any more, or
//! the record is damaged.
//!
//! [`AsyncWriteExt::write_all`]: tokio::io::AsyncWriteExt::write_all

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use tokio::net::TcpStream;

use super::record::{HEADER, MAX_RECORD, PREFACE, header};

/// The writer of records: the record that is being sent.
#[derive(Debug)]
pub(super) struct RecordWriter {
    /// The preface, if it is not sent yet, and the header of the record.
    start: Vec<u8>,
    is_first: bool,
    /// The length of the record in bytes; 0 if there is none.
    length: usize,
    /// The number of bytes of the record that are sent, the bytes in `start` included.
    sent: usize,
    /// The number of the next record.
    number: u64,
}

impl RecordWriter {
    pub fn new() -> Self {
        Self { start: Vec::new(), is_first: true, length: 0, sent: 0, number: 0 }
    }

    /// Sends a record with as many of these bytes as it can hold. Returns their number.
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
        if self.sent == 0 {
            self.begin(offered, slices);
        }
        if offered < self.length {
            let why = "a write to another host was given up in the middle";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        while self.sent < self.start.len() + self.length {
            ready!(tcp.poll_write_ready(context))?;
            match tcp.try_write_vectored(&self.rest(slices)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        (self.sent, self.is_first) = (0, false);
        self.number += 1;
        Poll::Ready(Ok(std::mem::take(&mut self.length)))
    }

    fn begin(&mut self, offered: usize, slices: &[IoSlice<'_>]) {
        self.length = offered.min(MAX_RECORD);
        let header: [u8; HEADER] = header(self.number, pieces(slices, self.length));
        self.start.clear();
        if self.is_first {
            self.start.extend_from_slice(PREFACE);
        }
        self.start.extend_from_slice(&header);
    }

    /// Returns the bytes of the record that are not sent yet.
    fn rest<'s>(&'s self, slices: &'s [IoSlice<'_>]) -> Vec<IoSlice<'s>> {
        let mut skipped = self.sent;
        let mut rest = Vec::with_capacity(1 + slices.len());
        for piece in std::iter::once(&self.start[..]).chain(pieces(slices, self.length)) {
            let skip = skipped.min(piece.len());
            skipped -= skip;
            if skip < piece.len() {
                rest.push(IoSlice::new(&piece[skip..]));
            }
        }
        rest
    }
}

/// Returns the first `length` bytes of the slices.
fn pieces<'s>(slices: &'s [IoSlice<'_>], length: usize) -> impl Iterator<Item = &'s [u8]> {
    slices.iter().scan(length, |left, slice| {
        let piece = &slice[..slice.len().min(*left)];
        *left -= piece.len();
        Some(piece)
    })
}
