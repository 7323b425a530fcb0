//! The outputs of other tasks that a task was granted.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result};
use futures::TryStreamExt;
use snowmelt_types::Report;
use snowmelt_wire::{BatchDecoder, BatchEncoder, Frame, TaskRead};

use super::source::{Frames, Source};
use crate::Error;

/// Parts that are begun ahead of the one that is read, with that one.
const AHEAD: usize = 4;

/// What a task wrote to one partition.
#[derive(Clone, Debug)]
struct Part {
    source: Arc<dyn Source>,
    /// Offset and length of each range; whole frames.
    ranges: Vec<(u64, u64)>,
}

/// The granted parts by stage and partition. An extension of the session's configuration, from
/// which the leaves of a decoded plan take them.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    /// One for each task that wrote to the partition.
    parts: BTreeMap<(u32, u32), Vec<Part>>,
}

impl Inputs {
    /// Combines the ranges of a task's header with the places of the outputs, by task.
    pub(crate) fn new(
        reads: &[TaskRead],
        sources: &BTreeMap<u32, Arc<dyn Source>>,
    ) -> Result<Self, Error> {
        let mut inputs = Self::default();
        for TaskRead { stage, task, partitions } in reads {
            let source = sources.get(task).ok_or_else(|| missing(*task))?;
            for partition in partitions {
                let part = Part { source: Arc::clone(source), ranges: partition.ranges.clone() };
                inputs.parts.entry((*stage, partition.partition)).or_default().push(part);
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
            begun: VecDeque::new(),
            is_new: true,
            decoder: BatchDecoder::default(),
        }
    }
}

fn missing(task: u32) -> Error {
    let why = format!("the output of task {task} was not granted");
    DataFusionError::Internal(why).into()
}

/// Reads the batches of some parts.
pub(super) struct Reader {
    schema: SchemaRef,
    // The last one is next.
    parts: Vec<Part>,
    // The part that is being read, and some that are read next: a part on another host is asked for
    // before it is needed.
    begun: VecDeque<Frames>,
    // No frame of the first of them was read.
    is_new: bool,
    decoder: BatchDecoder,
}

impl Reader {
    /// The next frame; `None` after the last one.
    pub(super) async fn frame(&mut self) -> Result<Option<Frame>> {
        self.next_frame().await.map_err(external)
    }

    async fn next_frame(&mut self) -> Result<Option<Frame>, Error> {
        loop {
            while self.begun.len() < AHEAD
                && let Some(part) = self.parts.pop()
            {
                self.begun.push_back(part.source.frames(part.ranges));
            }
            let Some(frames) = self.begun.front_mut() else { return Ok(None) };
            match frames.try_next().await? {
                Some(frame) => {
                    if std::mem::take(&mut self.is_new) {
                        // Each writer has dictionaries of its own.
                        self.decoder = BatchDecoder::default();
                        self.decoder.push(&BatchEncoder::default().schema(&self.schema)?)?;
                    }
                    return Ok(Some(frame));
                }
                None => {
                    self.begun.pop_front();
                    self.is_new = true;
                }
            }
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
