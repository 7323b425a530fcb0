//! Requests and answers on a connection between two hosts. All numbers are little-endian.
//!
//! A request is its length (u32) and [`REQUEST_BYTES`]: the digests of an image's manifest and of a
//! blob as text, the first byte and the end of a range (u64 each), whether the host is to send only
//! what it has (u8, 0 or 1), and for how many milliseconds it is waited for (u32). The answer is
//! the range in pieces, each behind its length (u32). Instead of a piece, a length of 0 ends the
//! answer: a kind (u8), the length of a text (u16) and the text follow. A length of 2^32 - 1 says
//! only that the host is still at work, and is sent once a second while it waits for a block
//! itself. Requests on a connection are answered in their order; a host that wants several at a
//! time opens several connections.
//!
//! Invariant: lengths are checked before anything is allocated for them.

use std::io;
use std::ops::Range;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::block::OciDigest;

/// Bytes of a digest as text.
const DIGEST_BYTES: usize = 71;

/// Bytes of a request behind its length.
const REQUEST_BYTES: usize = 2 * DIGEST_BYTES + 21;

/// The most bytes of a range that can be requested.
pub(super) const MAX_RANGE: u64 = 8 << 20;

/// The length that announces no bytes: it says that the host is at work.
const AT_WORK: u32 = u32::MAX;

/// The most bytes of the text of a failure.
const MAX_TEXT: usize = 1024;

/// The most bytes of a piece that are read at once, and the size of the buffers that they are read
/// to.
const STEP: usize = 128 << 10;

/// A buffer with less space is replaced by a new one.
const LEAST_SPACE: usize = 16 << 10;

/// A request of one host to another: a range of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RangeRequest {
    /// The manifest of an image that has the blob.
    pub image: OciDigest,
    pub blob: OciDigest,
    pub range: Range<u64>,
    /// True if the host is not to read what it lacks.
    pub if_here: bool,
    /// How long the requesting host waits: in this time the other host has the next bytes or
    /// refuses, whatever it waits for itself.
    pub within: Duration,
}

/// The reason why a host does not send what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PeerRefusal {
    /// The host has no place for the image, or the image has no such blob.
    Missing,
    /// The range is not in the blob, or is too long.
    Range,
    /// The host cannot read the blob itself.
    Unavailable(String),
    /// The host does not have the range now, and was not to read it.
    Absent,
}

/// Bytes of an answer, or its early end.
#[derive(Debug)]
pub(super) enum AnswerPart {
    /// The first byte of a piece is next.
    Begins,
    Bytes(Bytes),
    /// The host waits for the bytes itself.
    AtWork,
    Refusal(PeerRefusal),
}

impl RangeRequest {
    pub async fn write(&self, to: &mut (impl AsyncWrite + Unpin + ?Sized)) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(4 + REQUEST_BYTES);
        bytes.extend_from_slice(&(REQUEST_BYTES as u32).to_le_bytes());
        bytes.extend_from_slice(self.image.as_str().as_bytes());
        bytes.extend_from_slice(self.blob.as_str().as_bytes());
        bytes.extend_from_slice(&self.range.start.to_le_bytes());
        bytes.extend_from_slice(&self.range.end.to_le_bytes());
        bytes.push(u8::from(self.if_here));
        let within = u32::try_from(self.within.as_millis()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&within.to_le_bytes());
        to.write_all(&bytes).await?;
        to.flush().await
    }

    /// Reads the next request; `None` at the end of the connection.
    pub async fn read(from: &mut (impl AsyncRead + Unpin + ?Sized)) -> io::Result<Option<Self>> {
        let mut length = [0; 4];
        match from.read_exact(&mut length).await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        };
        if u32::from_le_bytes(length) as usize != REQUEST_BYTES {
            return Err(invalid("a request has another length"));
        }
        let mut bytes = [0; REQUEST_BYTES];
        from.read_exact(&mut bytes).await?;
        let (image, rest) = bytes.split_at(DIGEST_BYTES);
        let (blob, range) = rest.split_at(DIGEST_BYTES);
        let (start, rest) = range.split_at(8);
        let (end, rest) = rest.split_at(8);
        let (if_here, within) = rest.split_at(1);
        let within = within.try_into().map_or(0, u32::from_le_bytes);
        Ok(Some(Self {
            image: digest(image)?,
            blob: digest(blob)?,
            range: number(start)..number(end),
            if_here: if_here == [1],
            within: Duration::from_millis(within.into()),
        }))
    }

    /// Returns the number of bytes of the range, if it can be requested.
    pub fn length(&self) -> Option<u64> {
        let length = self.range.end.checked_sub(self.range.start)?;
        (1..=MAX_RANGE).contains(&length).then_some(length)
    }
}

/// Writes one piece of an answer.
pub(super) async fn write_piece(
    to: &mut (impl AsyncWrite + Unpin),
    piece: &[u8],
) -> io::Result<()> {
    let length = u32::try_from(piece.len()).map_err(|_| invalid("a piece is too long"))?;
    to.write_all(&length.to_le_bytes()).await?;
    to.write_all(piece).await?;
    to.flush().await
}

/// Tells the other host that the answer takes time.
pub(super) async fn write_at_work(to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    to.write_all(&AT_WORK.to_le_bytes()).await?;
    to.flush().await
}

/// Ends an answer early.
pub(super) async fn write_refusal(
    to: &mut (impl AsyncWrite + Unpin),
    refusal: &PeerRefusal,
) -> io::Result<()> {
    let (kind, text) = match refusal {
        PeerRefusal::Missing => (1, ""),
        PeerRefusal::Range => (2, ""),
        PeerRefusal::Unavailable(text) => (3, text.as_str()),
        PeerRefusal::Absent => (4, ""),
    };
    let text = &text.as_bytes()[..text.len().min(MAX_TEXT)];
    let mut bytes = vec![0, 0, 0, 0, kind];
    bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
    bytes.extend_from_slice(text);
    to.write_all(&bytes).await?;
    to.flush().await
}

/// The state of an answer that is being read.
#[derive(Debug)]
pub(super) struct AnswerReader {
    /// Bytes of the answer that have not arrived.
    pub left: u64,
    /// Bytes that have not arrived of the piece which is being read.
    in_piece: u64,
    /// The buffer to whose end the next bytes are read. A slow link gives a few packets at a time:
    /// a buffer for each read would cost more than all else that a host does with the bytes.
    buffer: BytesMut,
}

impl AnswerReader {
    pub fn new(length: u64) -> Self {
        Self { left: length, in_piece: 0, buffer: BytesMut::new() }
    }

    /// Returns whether a piece has begun of which bytes are left.
    pub fn is_in_piece(&self) -> bool {
        self.in_piece > 0
    }

    /// Reads the next bytes, as many as have arrived. Call it only while some are left.
    pub async fn next(
        &mut self,
        from: &mut (impl AsyncRead + Unpin + ?Sized),
    ) -> io::Result<AnswerPart> {
        if self.in_piece == 0 {
            match from.read_u32_le().await? {
                0 => return read_refusal(from).await.map(AnswerPart::Refusal),
                AT_WORK => return Ok(AnswerPart::AtWork),
                length if u64::from(length) > self.left => {
                    return Err(invalid("a piece is longer than the answer"));
                }
                length => {
                    self.in_piece = u64::from(length);
                    return Ok(AnswerPart::Begins);
                }
            }
        }
        let most = usize::try_from(self.in_piece).map_or(STEP, |bytes| bytes.min(STEP));
        if self.buffer.capacity() < most.min(LEAST_SPACE) {
            let expected = usize::try_from(self.left).map_or(STEP, |bytes| bytes.min(STEP));
            self.buffer = BytesMut::with_capacity(expected);
        }
        let count = from.read_buf(&mut (&mut self.buffer).limit(most)).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.in_piece -= count as u64;
        self.left -= count as u64;
        Ok(AnswerPart::Bytes(self.buffer.split().freeze()))
    }
}

async fn read_refusal(from: &mut (impl AsyncRead + Unpin + ?Sized)) -> io::Result<PeerRefusal> {
    let kind = from.read_u8().await?;
    let length = usize::from(from.read_u16_le().await?);
    if length > MAX_TEXT {
        return Err(invalid("the text of a failure is too long"));
    }
    let mut text = vec![0; length];
    from.read_exact(&mut text).await?;
    let text = String::from_utf8_lossy(&text).chars().filter(|c| !c.is_control()).collect();
    match kind {
        1 => Ok(PeerRefusal::Missing),
        2 => Ok(PeerRefusal::Range),
        3 => Ok(PeerRefusal::Unavailable(text)),
        4 => Ok(PeerRefusal::Absent),
        _ => Err(invalid("a failure is of an unknown kind")),
    }
}

fn digest(bytes: &[u8]) -> io::Result<OciDigest> {
    let text = std::str::from_utf8(bytes).map_err(|_| invalid("a digest is not text"))?;
    text.parse().map_err(|_| invalid("a digest is not one"))
}

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> RangeRequest {
        let image = OciDigest::of(b"image");
        let blob = OciDigest::of(b"blob");
        let within = Duration::from_millis(30_005);
        RangeRequest { image, blob, range: 5..70_000, if_here: true, within }
    }

    #[tokio::test]
    async fn a_request_is_read_as_it_was_written() {
        let mut bytes = Vec::new();
        request().write(&mut bytes).await.unwrap();
        let mut from = &bytes[..];
        assert_eq!(RangeRequest::read(&mut from).await.unwrap(), Some(request()));
        assert_eq!(RangeRequest::read(&mut from).await.unwrap(), None);
        for cut in 1..bytes.len() {
            let read = RangeRequest::read(&mut &bytes[..cut]).await;
            assert!(matches!(read, Ok(None) | Err(_)), "{cut}");
        }
        bytes[0] += 1;
        assert!(RangeRequest::read(&mut &bytes[..]).await.is_err());
    }

    #[test]
    fn only_ranges_of_some_bytes_can_be_asked_for() {
        let of = |start, end| RangeRequest { range: Range { start, end }, ..request() }.length();
        assert_eq!((of(3, 4), of(0, MAX_RANGE)), (Some(1), Some(MAX_RANGE)));
        assert_eq!((of(3, 3), of(4, 3), of(0, MAX_RANGE + 1)), (None, None, None));
        assert_eq!(of(u64::MAX, 0), None);
    }

    #[tokio::test]
    async fn pieces_that_arrive_in_small_parts_share_their_buffers() {
        let sent: Vec<u8> = (0..300_000_u32).map(|number| (number % 251) as u8).collect();
        let (mut to, mut from) = tokio::io::duplex(1000);
        let writing = sent.clone();
        let writer = tokio::spawn(async move {
            for piece in writing.chunks(100_000) {
                write_piece(&mut to, piece).await.unwrap();
            }
        });
        let mut reading = AnswerReader::new(sent.len() as u64);
        let mut received = Vec::new();
        let mut allocated = 0;
        while reading.left > 0 {
            let before = reading.buffer.capacity();
            if let AnswerPart::Bytes(bytes) = reading.next(&mut from).await.unwrap() {
                allocated += usize::from(reading.buffer.capacity() + bytes.len() > before);
                received.extend_from_slice(&bytes);
            }
        }
        writer.await.unwrap();
        assert_eq!(received, sent);
        assert!(allocated <= 4, "{allocated} buffers of 128 KiB for 300 reads");
    }

    #[tokio::test]
    async fn an_answer_may_end_early_and_never_late() {
        let mut bytes = Vec::new();
        write_at_work(&mut bytes).await.unwrap();
        write_piece(&mut bytes, b"abc").await.unwrap();
        let refusal = PeerRefusal::Unavailable("x".repeat(5000));
        write_refusal(&mut bytes, &refusal).await.unwrap();
        let mut from = &bytes[..];
        let mut reading = AnswerReader::new(5);
        assert!(matches!(reading.next(&mut from).await.unwrap(), AnswerPart::AtWork));
        assert!(matches!(reading.next(&mut from).await.unwrap(), AnswerPart::Begins));
        let AnswerPart::Bytes(piece) = reading.next(&mut from).await.unwrap() else { panic!() };
        assert_eq!((&piece[..], reading.left), (&b"abc"[..], 2));
        let part = reading.next(&mut from).await.unwrap();
        let AnswerPart::Refusal(PeerRefusal::Unavailable(text)) = part else { panic!("{part:?}") };
        assert_eq!(text.len(), MAX_TEXT);
        let long = AnswerReader::new(2).next(&mut &bytes[4..]).await.unwrap_err();
        assert_eq!(long.kind(), io::ErrorKind::InvalidData);
        let mut from = &bytes[4..8];
        let mut reading = AnswerReader::new(5);
        assert!(matches!(reading.next(&mut from).await.unwrap(), AnswerPart::Begins));
        let cut = reading.next(&mut from).await.unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
    }
}
