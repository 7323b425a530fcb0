//! The frame format: 4 bytes of payload length (little endian), 1 byte of kind, 3 zero bytes, then
//! the payload.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::frame_kind::{Kind, MAX_PAYLOAD_BYTES};
use crate::{Error, Result};

/// The number of bytes before the payload.
pub const HEADER_BYTES: usize = 8;

/// The payload size in bytes below which one system call with a copied payload is cheaper than two
/// without a copy.
const JOIN_BYTES: usize = 64 << 10;

impl TryFrom<u8> for Kind {
    type Error = Error;

    fn try_from(number: u8) -> Result<Self> {
        Self::of(number).ok_or(Error::UnknownKind(number))
    }
}

/// A complete frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The kind of the payload.
    pub kind: Kind,
    /// The payload.
    pub payload: Bytes,
}

impl Frame {
    /// A frame of bytes.
    pub fn new(kind: Kind, payload: impl Into<Bytes>) -> Self {
        Self { kind, payload: payload.into() }
    }

    /// A frame with a JSON message.
    pub fn json(kind: Kind, message: &impl Serialize) -> Result<Self> {
        let payload = serde_json::to_vec(message).map_err(|source| Error::Json { kind, source })?;
        Ok(Self::new(kind, payload))
    }

    /// The JSON message of a frame.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.payload)
            .map_err(|source| Error::Json { kind: self.kind, source })
    }

    /// Returns the frame if it is of this kind, and [`Error::Unexpected`] otherwise.
    pub fn expect(self, kind: Kind, expected: &'static str) -> Result<Self> {
        if self.kind == kind {
            return Ok(self);
        }
        Err(Error::Unexpected { found: self.kind, expected })
    }

    /// The encoded header.
    pub fn header(&self) -> Result<[u8; HEADER_BYTES]> {
        encode_header(self.kind, self.payload.len())
    }
}

pub(crate) fn encode_header(kind: Kind, length: usize) -> Result<[u8; HEADER_BYTES]> {
    let short = u32::try_from(length).ok().filter(|length| *length <= MAX_PAYLOAD_BYTES);
    let short = short.ok_or(Error::TooLong(length as u64))?;
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&short.to_le_bytes());
    header[4] = kind as u8;
    Ok(header)
}

/// Decodes a header; refuses unknown kinds and lengths above the limit.
pub fn decode_header(header: [u8; HEADER_BYTES]) -> Result<(Kind, usize)> {
    let [a, b, c, d, kind, ..] = header;
    let length = u32::from_le_bytes([a, b, c, d]);
    if length > MAX_PAYLOAD_BYTES {
        return Err(Error::TooLong(length.into()));
    }
    Ok((Kind::try_from(kind)?, length as usize))
}

/// Reads one frame; `None` if the other side closed the connection between two frames.
pub async fn read_frame(from: &mut (impl AsyncRead + Unpin)) -> Result<Option<Frame>> {
    read_frame_within(from, MAX_PAYLOAD_BYTES).await
}

/// Reads one frame whose payload has at most `max` bytes: for senders that should never need
/// more.
pub async fn read_frame_within(
    from: &mut (impl AsyncRead + Unpin),
    max: u32,
) -> Result<Option<Frame>> {
    let Some((kind, length)) = read_header(from).await? else { return Ok(None) };
    if length > max as usize {
        return Err(Error::TooLong(length as u64));
    }
    read_payload(from, kind, length).await.map(Some)
}

/// Reads the header of a frame, for readers that check first whether there is memory for it; `None`
/// if the other side closed the connection between two frames.
pub async fn read_header(from: &mut (impl AsyncRead + Unpin)) -> Result<Option<(Kind, usize)>> {
    let mut header = [0; HEADER_BYTES];
    let first = from.read(&mut header).await?;
    if first == 0 {
        return Ok(None);
    }
    from.read_exact(&mut header[first..]).await?;
    decode_header(header).map(Some)
}

/// Reads the payload of a frame whose header was read.
pub async fn read_payload(
    from: &mut (impl AsyncRead + Unpin),
    kind: Kind,
    length: usize,
) -> Result<Frame> {
    let mut payload = vec![0; length];
    from.read_exact(&mut payload).await?;
    Ok(Frame::new(kind, payload))
}

/// Writes one frame; a short one in a single call, so that its reader is woken once.
pub async fn write_frame(to: &mut (impl AsyncWrite + Unpin), frame: &Frame) -> Result<()> {
    let header = frame.header()?;
    if frame.payload.len() <= JOIN_BYTES {
        to.write_all(&[&header, &*frame.payload].concat()).await?;
        return Ok(());
    }
    to.write_all(&header).await?;
    to.write_all(&frame.payload).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_written_frame_is_read_back() {
        let (mut near, mut far) = tokio::io::duplex(64);
        let sent = Frame::json(Kind::Return, &serde_json::json!({"a": 1})).unwrap();
        let expected = sent.clone();
        let writer = tokio::spawn(async move { write_frame(&mut near, &sent).await });
        assert_eq!(read_frame(&mut far).await.unwrap(), Some(expected));
        writer.await.unwrap().unwrap();
        assert_eq!(read_frame(&mut far).await.unwrap(), None);
    }

    #[tokio::test]
    async fn unknown_kinds_and_lengths_are_refused_before_the_payload_is_read() {
        let mut unknown: &[u8] = &[0, 0, 0, 0, 99, 0, 0, 0];
        assert!(matches!(read_frame(&mut unknown).await, Err(Error::UnknownKind(99))));
        let mut huge: &[u8] = &[255, 255, 255, 255, 1, 0, 0, 0];
        assert!(matches!(read_frame(&mut huge).await, Err(Error::TooLong(_))));
    }

    #[tokio::test]
    async fn a_truncated_frame_is_an_error() {
        let mut cut: &[u8] = &[5, 0, 0, 0, 1, 0, 0, 0, 1, 2];
        assert!(matches!(read_frame(&mut cut).await, Err(Error::Io(_))));
    }
}
