//! Reads the output of a stage from streams, while its tasks run.
//!
//! All senders are read at the same time, each frame by frame: a sender never waits for a receiver
//! that waits for another sender. At most one frame of each is in memory.
//!
//! Invariant: the rows of a sender are complete only with the end of its stream. A stream without
//! an end belongs to a lost task, which [`StreamSource::lost`] names.

use std::collections::{BTreeSet, HashMap};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use futures::stream::{BoxStream, SelectAll};
use futures::{StreamExt, TryStreamExt, stream};
use snowmelt_wire::{Error as WireError, Frame, Kind, read_frame};
use tokio::net::UnixStream;

use crate::Error;
use crate::exchange::decoder::{FrameReader, PartDecoder, external};

/// The streams of a stage to one task.
#[derive(Debug)]
pub(crate) struct StreamSource {
    stage: u32,
    /// The sockets, each with the number of the task that sends; `None` once the reader has taken
    /// them.
    sockets: Mutex<Option<Vec<(u32, StdStream)>>>,
    lost: Arc<Mutex<BTreeSet<u32>>>,
}

impl StreamSource {
    pub(crate) fn new(stage: u32, sockets: Vec<(u32, StdStream)>) -> Self {
        Self { stage, sockets: Mutex::new(Some(sockets)), lost: Arc::default() }
    }

    /// Returns the stage whose rows the streams have.
    pub(in crate::exchange) fn stage(&self) -> u32 {
        self.stage
    }

    /// The tasks whose streams had no end.
    pub(crate) fn lost(&self) -> Vec<u32> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    /// Reads all streams. To be called in the runtime that reads them.
    ///
    /// # Errors
    /// The streams were read before: rows are not kept.
    pub(in crate::exchange) fn read(&self, schema: SchemaRef) -> DataFusionResult<StreamReader> {
        // Taken for good: rows that were read once cannot be read again.
        let sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner).take();
        let sockets = sockets.ok_or_else(|| {
            DataFusionError::Internal(format!("the stream of stage {} is read twice", self.stage))
        })?;
        let mut frames = SelectAll::new();
        for (task, socket) in sockets {
            let opened = open(socket).map_err(|error| external(&Error::Exchange(error)))?;
            let sender = RowSender { task, socket: opened, partition: None };
            frames.push(sender.frames(Arc::clone(&self.lost)));
        }
        Ok(StreamReader { schema, frames, decoders: HashMap::new() })
    }
}

fn open(socket: StdStream) -> std::io::Result<UnixStream> {
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

/// A frame with its sender and its partition.
type Received = ((u32, u32), Frame);

/// Reads the batches of all streams as they come.
pub(in crate::exchange) struct StreamReader {
    schema: SchemaRef,
    frames: SelectAll<BoxStream<'static, Result<Received, Error>>>,
    decoders: HashMap<(u32, u32), PartDecoder>,
}

impl FrameReader for StreamReader {
    type Received = Received;

    async fn frame(&mut self) -> DataFusionResult<Option<Received>> {
        self.frames.try_next().await.map_err(|error| external(&error))
    }

    fn decode(&mut self, (part, frame): &Received) -> DataFusionResult<Option<RecordBatch>> {
        let decoded = match self.decoders.get_mut(part) {
            Some(decoder) => decoder.decode(frame),
            None => PartDecoder::new(Arc::clone(&self.schema))
                .and_then(|decoder| self.decoders.entry(*part).or_insert(decoder).decode(frame)),
        };
        decoded.map_err(|error| external(&error))
    }
}

/// A task of the other stage that sends rows over a stream.
struct RowSender {
    task: u32,
    socket: UnixStream,
    partition: Option<u32>,
}

impl RowSender {
    fn frames(
        self,
        lost: Arc<Mutex<BTreeSet<u32>>>,
    ) -> BoxStream<'static, Result<Received, Error>> {
        let frames = stream::try_unfold((self, lost), |(mut sender, lost)| async move {
            match sender.next().await {
                Ok(received) => Ok(received.map(|received| (received, (sender, lost)))),
                Err(error) => {
                    if matches!(error, Error::StreamLost { .. }) {
                        let mut lost = lost.lock().unwrap_or_else(PoisonError::into_inner);
                        lost.insert(sender.task);
                    }
                    Err(error)
                }
            }
        });
        frames.boxed()
    }

    /// Receives the next frame of a batch; `None` after the end of the stream.
    async fn next(&mut self) -> Result<Option<Received>, Error> {
        loop {
            let frame = match read_frame(&mut self.socket).await {
                Ok(Some(frame)) => frame,
                // Whatever happened to the sender, its rows are not complete; the driver knows how
                // it ended.
                Ok(None) | Err(WireError::Closed | WireError::Io(_)) => {
                    return Err(Error::StreamLost { task: self.task });
                }
                Err(error) => return Err(error.into()),
            };
            match (frame.kind, self.partition) {
                (Kind::End, _) => return Ok(None),
                (Kind::Partition, _) => self.partition = Some(partition(&frame)?),
                (Kind::Batch, Some(partition)) => {
                    return Ok(Some(((self.task, partition), frame)));
                }
                (found, _) => {
                    let expected = "Partition, Batch or End";
                    return Err(WireError::Unexpected { found, expected }.into());
                }
            }
        }
    }
}

fn partition(frame: &Frame) -> Result<u32, Error> {
    let bytes: Result<[u8; 4], _> = frame.payload.as_ref().try_into();
    let wrong = WireError::Unexpected { found: Kind::Partition, expected: "4 bytes" };
    Ok(u32::from_le_bytes(bytes.map_err(|_| wrong)?))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
