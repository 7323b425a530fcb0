//! The outputs of other tasks that a task was granted.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result};
use futures::TryStreamExt;
use snowmelt_types::Report;
use snowmelt_wire::{BatchDecoder, BatchEncoder, Frame, ObjectsAt, OutputPartition, TaskRead};

use super::object_source::ObjectSource;
use super::source::{Frames, Source};
use super::stores::{Stores, object};
use crate::Error;

/// What a task wrote to one partition.
#[derive(Clone, Debug)]
struct Part {
    source: Arc<dyn Source>,
    /// Offset and length of each range; whole frames.
    ranges: Vec<(u64, u64)>,
}

impl Part {
    fn bytes(&self) -> u64 {
        self.ranges.iter().map(|(_, length)| length).sum()
    }
}

/// The most parts that a reader has open: so many requests are under way while it decodes.
const AHEAD: usize = 16;

/// The granted parts by stage and partition. An extension of the session's configuration, from
/// which the leaves of a decoded plan take them.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    /// One for each task that wrote to the partition.
    parts: BTreeMap<(u32, u32), Vec<Part>>,
    /// Bytes of parts that a reader opens ahead.
    ahead_bytes: u64,
}

impl Inputs {
    /// Combines the ranges of a task's header with the places of the outputs: granted ones by task,
    /// and objects.
    pub(crate) fn new(
        reads: &[TaskRead],
        granted: &BTreeMap<u32, Arc<dyn Source>>,
        stores: &Arc<Stores>,
        ahead_bytes: u64,
    ) -> Result<Self, Error> {
        let mut inputs = Self { parts: BTreeMap::new(), ahead_bytes };
        for read in reads {
            for partition in &read.partitions {
                let source = match &read.objects {
                    Some(at) => objects(at, read, partition, stores)?,
                    None => Arc::clone(granted.get(&read.task).ok_or_else(|| missing(read.task))?),
                };
                let part = Part { source, ranges: partition.ranges.clone() };
                inputs.parts.entry((read.stage, partition.partition)).or_default().push(part);
            }
        }
        Ok(inputs)
    }

    /// Reads partitions of a stage, one after another.
    pub(super) fn read(&self, stage: u32, partitions: &[u32], schema: SchemaRef) -> Reader {
        let written = partitions.iter().filter_map(|it| self.parts.get(&(stage, *it)));
        let mut parts: Vec<Part> = written.flatten().cloned().collect();
        parts.reverse();
        Reader {
            schema,
            parts,
            open: VecDeque::new(),
            open_bytes: 0,
            ahead_bytes: self.ahead_bytes,
            current: None,
            decoder: BatchDecoder::default(),
        }
    }
}

fn objects(
    at: &ObjectsAt,
    read: &TaskRead,
    partition: &OutputPartition,
    stores: &Arc<Stores>,
) -> Result<Arc<dyn Source>, Error> {
    if partition.objects.len() != partition.ranges.len() {
        return Err(missing(read.task));
    }
    let writer = (read.task, read.attempt);
    let numbers = partition.objects.iter();
    let objects = numbers.map(|number| object(at, writer, partition.partition, *number)).collect();
    Ok(Arc::new(ObjectSource::new(Arc::clone(stores), objects)))
}

fn missing(task: u32) -> Error {
    let why = format!("the output of task {task} was not granted");
    DataFusionError::Internal(why).into()
}

/// Reads the batches of some parts.
pub(super) struct Reader {
    schema: SchemaRef,
    // Not open yet. The last one is next.
    parts: Vec<Part>,
    // The next ones, open, with their sizes.
    open: VecDeque<(u64, Frames)>,
    open_bytes: u64,
    ahead_bytes: u64,
    // The part that is being read, and its size.
    current: Option<(u64, Frames)>,
    decoder: BatchDecoder,
}

impl Reader {
    /// The next frame; `None` after the last one.
    pub(super) async fn frame(&mut self) -> Result<Option<Frame>> {
        self.next_frame().await.map_err(external)
    }

    async fn next_frame(&mut self) -> Result<Option<Frame>, Error> {
        loop {
            if let Some((bytes, frames)) = &mut self.current {
                match frames.try_next().await? {
                    Some(frame) => return Ok(Some(frame)),
                    None => {
                        self.open_bytes -= *bytes;
                        self.current = None;
                    }
                }
            }
            self.open_ahead();
            let Some(next) = self.open.pop_front() else { return Ok(None) };
            // Each writer has dictionaries of its own.
            self.decoder = BatchDecoder::default();
            self.decoder.push(&BatchEncoder::default().schema(&self.schema)?)?;
            self.current = Some(next);
        }
    }

    /// Opens the next part, and others while there are few and they are small.
    fn open_ahead(&mut self) {
        while let Some(part) = self.parts.pop() {
            let bytes = part.bytes();
            let full = self.open.len() >= AHEAD || self.open_bytes + bytes > self.ahead_bytes;
            if full && !self.open.is_empty() {
                self.parts.push(part);
                return;
            }
            self.open_bytes += bytes;
            self.open.push_back((bytes, part.source.frames(part.ranges)));
        }
    }

    /// The batch of a frame; `None` if it has only a dictionary.
    pub(super) fn decode(&mut self, frame: &Frame) -> Result<Option<RecordBatch>> {
        self.decode_frame(frame).map_err(external)
    }

    fn decode_frame(&mut self, frame: &Frame) -> Result<Option<RecordBatch>, Error> {
        let Some(batch) = self.decoder.push(frame)?.pop() else { return Ok(None) };
        // Checks names, types and nulls.
        let options =
            arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = batch.columns().to_vec();
        let schema = Arc::clone(&self.schema);
        Ok(Some(RecordBatch::try_new_with_options(schema, columns, &options)?))
    }
}

fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error.report()))
}
