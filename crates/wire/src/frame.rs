//! The frame format: 4 bytes of payload length (little endian), 1 byte of kind, 3 zero bytes, then
//! the payload.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::{Error, Result};

/// The number of bytes before the payload.
pub const HEADER_BYTES: usize = 8;

/// The longest accepted payload: batches are bounded by rows and bytes far below it.
pub const MAX_PAYLOAD_BYTES: u32 = 256 << 20;

/// The payload size in bytes below which one system call with a copied payload is cheaper than two
/// without a copy.
const JOIN_BYTES: usize = 64 << 10;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $value:literal,)*) => {
        /// The content of a frame.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Kind { $($(#[$doc])* $name = $value,)* }

        impl TryFrom<u8> for Kind {
            type Error = Error;

            fn try_from(value: u8) -> Result<Self> {
                match value {
                    $($value => Ok(Self::$name),)*
                    unknown => Err(Error::UnknownKind(unknown)),
                }
            }
        }
    };
}

kinds! {
    /// JSON [`crate::Load`]: the code that the instance must load for this connection.
    Load = 1,
    /// JSON [`crate::Ready`]: the code is loaded.
    Ready = 2,
    /// JSON [`crate::Call`]: one invocation of a function.
    Call = 3,
    /// JSON: the value that a function returned.
    Return = 4,
    /// JSON: [`crate::FunctionFailure`] from an instance, [`crate::TaskFailure`] from the worker of
    /// a task, `ErrorReport` from a driver or server.
    Failure = 5,
    /// An Arrow IPC schema message.
    Schema = 6,
    /// Arrow IPC messages: one record batch with the dictionaries that it needs.
    Batch = 7,
    /// The end of this direction.
    End = 8,
    /// JSON [`crate::Task`]: a task for a query worker.
    Task = 9,
    /// A serialised DataFusion physical plan.
    Plan = 10,
    /// JSON list of [`crate::FileGrant`], with one descriptor each.
    Files = 11,
    /// JSON list of [`crate::UdfGrant`], with one descriptor each.
    Udfs = 12,
    /// JSON [`crate::TaskProgress`].
    Progress = 13,
    /// JSON [`crate::TaskDone`]: the task's results are complete.
    Done = 14,
    /// JSON: an event of a query for the user's progress display.
    Event = 15,
    /// JSON: the profile of a query.
    Profile = 16,
    /// JSON [`crate::Drive`]: a query for a driver to plan and run, with two descriptors.
    Drive = 17,
    /// JSON [`crate::Request`] of a driver.
    Request = 18,
    /// JSON [`crate::Reply`] to a driver, with the descriptors that it names.
    Reply = 19,
    /// JSON list of task numbers, with one descriptor each: the outputs that a task reads.
    Inputs = 20,
    /// The file that a task writes its output to, as a descriptor.
    Output = 21,
    /// JSON list of [`crate::HostOutputs`], with one connected socket each: the outputs on other
    /// hosts that a task reads.
    HostOutputs = 32,
    /// The scratch of a task, an empty file, as a descriptor.
    Scratch = 33,
    /// JSON list of task numbers, with one connected socket each: the streams between a task and
    /// the others of its gang.
    Streams = 34,
    /// 4 bytes, little endian: the partition of the `Batch` frames that follow in a stream.
    Partition = 35,
    /// JSON [`crate::Clean`]: what a worker removes from the locations of an exchange.
    Clean = 22,
    /// A descriptor of memory for batches, and the sizes of the two parts of this memory (two u64).
    /// An instance of a UDF maps it and answers with an empty frame of this kind.
    SharedMemory = 36,
    /// The range of a batch in the shared memory (offset and length, two u64), and a byte: 1 if the
    /// function keeps the arguments of its last call, which then must not be overwritten.
    SharedBatch = 37,
    /// JSON [`crate::AggregateCall`] to an instance of an aggregate function, and its answer
    /// [`crate::AggregateDone`].
    Aggregate = 40,
    /// JSON [`crate::Statement`]: a statement for a worker to parse. The worker answers with a
    /// frame of this kind that has the JSON [`crate::Definition`].
    Definition = 38,
    /// Bytes of the connection between a client and the instance that it has leased, which travel
    /// on the connection of the lease: no descriptor leads to another host.
    Relayed = 50,
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
