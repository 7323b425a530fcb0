//! The outputs of other tasks that a task was granted.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result};
use futures::TryStreamExt;
use snowmelt_wire::{Frame, KeyRange, ObjectsAt, OutputPartition, TaskRead};

use super::decoder::{FrameReader, PartDecoder, external};
use super::objects::names::object;
use super::objects::source::ObjectSource;
use super::objects::stores::Stores;
use super::source::{Frames, OutputSource};
use super::streams::source::StreamSource;
use crate::Error;

/// The output of one task for one partition.
#[derive(Clone, Debug)]
struct InputPart {
    source: Arc<dyn OutputSource>,
    /// Offset and length in bytes of each range, which consists of whole frames.
    ranges: Vec<(u64, u64)>,
    /// The keys of the rows that are read, if the part is sorted. `None`: all rows are read.
    keys: Option<KeyRange>,
}

impl InputPart {
    fn bytes(&self) -> u64 {
        self.ranges.iter().map(|(_, length)| length).sum()
    }
}

/// The most parts that a reader has open, and so the most requests under way while it decodes.
const AHEAD: usize = 16;

/// The granted parts by stage and partition. An extension of the session's configuration, from
/// which the leaves of a decoded plan take them.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    /// By stage and partition, a part for each task that wrote to the partition.
    parts: BTreeMap<(u32, u32), Vec<InputPart>>,
    /// Bytes of parts that a reader opens ahead.
    ahead_bytes: u64,
    /// Rows that are read while other tasks make them. `None` if no stage streams to the task.
    streams: Option<Arc<StreamSource>>,
}

impl Inputs {
    /// Combines the ranges of a task's header with the places of the outputs: granted ones by task,
    /// and objects.
    pub(crate) fn new(
        reads: &[TaskRead],
        granted: &BTreeMap<u32, Arc<dyn OutputSource>>,
        stores: &Arc<Stores>,
        ahead_bytes: u64,
    ) -> Result<Self, Error> {
        let mut inputs = Self { parts: BTreeMap::new(), ahead_bytes, streams: None };
        for read in reads {
            for partition in &read.partitions {
                let source = match &read.objects {
                    Some(at) => objects(at, read, partition, stores)?,
                    None => Arc::clone(granted.get(&read.task).ok_or_else(|| missing(read.task))?),
                };
                let ranges = partition.ranges.clone();
                let keys = read.range.clone();
                let part = InputPart { source, ranges, keys };
                inputs.parts.entry((read.stage, partition.partition)).or_default().push(part);
            }
        }
        Ok(inputs)
    }

    /// Adds the streams of a stage.
    pub(crate) fn with_streams(self, streams: Option<Arc<StreamSource>>) -> Self {
        Self { streams, ..self }
    }

    /// Returns the streams of a stage, if its rows come over streams.
    pub(super) fn streams(&self, stage: u32) -> Option<&StreamSource> {
        self.streams.as_deref().filter(|streams| streams.stage() == stage)
    }

    /// Reads partitions of a stage, one after another.
    pub(super) fn read(&self, stage: u32, partitions: &[u32], schema: SchemaRef) -> PartReader {
        let written =
            partitions.iter().filter_map(|partition| self.parts.get(&(stage, *partition)));
        let mut parts: Vec<InputPart> = written.flatten().cloned().collect();
        parts.reverse();
        self.reader(parts, schema)
    }

    /// Returns a reader for each sorted part of `partitions`, with the range of its rows that are
    /// read.
    pub(super) fn runs(
        &self,
        stage: u32,
        partitions: &[u32],
        schema: &SchemaRef,
    ) -> Vec<(PartReader, KeyRange)> {
        let written =
            partitions.iter().filter_map(|partition| self.parts.get(&(stage, *partition)));
        let run = |part: &InputPart| {
            let keys = part.keys.clone().unwrap_or_default();
            (self.reader(vec![part.clone()], Arc::clone(schema)), keys)
        };
        written.flatten().map(run).collect()
    }

    fn reader(&self, parts: Vec<InputPart>, schema: SchemaRef) -> PartReader {
        PartReader {
            schema,
            parts,
            open: VecDeque::new(),
            open_bytes: 0,
            ahead_bytes: self.ahead_bytes,
            current: None,
            decoder: None,
        }
    }
}

fn objects(
    at: &ObjectsAt,
    read: &TaskRead,
    partition: &OutputPartition,
    stores: &Arc<Stores>,
) -> Result<Arc<dyn OutputSource>, Error> {
    if partition.objects.len() != partition.ranges.len() {
        return Err(missing(read.task));
    }
    let name = |number: &u32| object(at, read.task, read.attempt, partition.partition, *number);
    let objects = partition.objects.iter().map(name).collect();
    Ok(Arc::new(ObjectSource::new(Arc::clone(stores), objects)))
}

fn missing(task: u32) -> Error {
    let why = format!("the output of task {task} was not granted");
    DataFusionError::Internal(why).into()
}

/// Reads the batches of some parts.
pub(super) struct PartReader {
    schema: SchemaRef,
    // Not open yet. The last one is next.
    parts: Vec<InputPart>,
    // The next ones, open, with their sizes.
    open: VecDeque<(u64, Frames)>,
    open_bytes: u64,
    ahead_bytes: u64,
    // The part that is being read, and its size.
    current: Option<(u64, Frames)>,
    decoder: Option<PartDecoder>,
}

impl FrameReader for PartReader {
    type Received = Frame;

    async fn frame(&mut self) -> Result<Option<Frame>> {
        self.next_frame().await.map_err(|error| external(&error))
    }

    fn decode(&mut self, frame: &Frame) -> Result<Option<RecordBatch>> {
        let Some(decoder) = &mut self.decoder else { return Ok(None) };
        decoder.decode(frame).map_err(|error| external(&error))
    }
}

impl PartReader {
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
            self.decoder = Some(PartDecoder::new(Arc::clone(&self.schema))?);
            self.current = Some(next);
        }
    }

    /// Opens the next part, and further ones while few are open and they are small.
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
}
