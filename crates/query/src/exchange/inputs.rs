//! The outputs of other tasks that a task was granted.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result};
use snowmelt_types::Report;
use snowmelt_wire::{
    BatchDecoder, BatchEncoder, Error as WireError, Frame, HEADER_BYTES, Kind, TaskRead,
    decode_header,
};

use crate::Error;

/// A part of a file that holds whole frames.
#[derive(Clone, Debug)]
struct Range {
    file: Arc<File>,
    offset: u64,
    length: u64,
}

/// The granted ranges by stage and partition. An extension of the session's configuration, from
/// which the leaves of a decoded plan take them.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    /// One list for each task that wrote to the partition.
    ranges: BTreeMap<(u32, u32), Vec<Vec<Range>>>,
}

impl Inputs {
    /// Combines the ranges of a task's header with the files that were granted, by task.
    pub(crate) fn new(reads: &[TaskRead], files: Vec<(u32, File)>) -> Result<Self, Error> {
        let files: BTreeMap<u32, Arc<File>> =
            files.into_iter().map(|(task, file)| (task, Arc::new(file))).collect();
        let mut inputs = Self::default();
        for TaskRead { stage, task, partitions } in reads {
            let file = files.get(task).ok_or_else(|| missing(*task))?;
            for partition in partitions {
                let range = |&(offset, length)| Range { file: Arc::clone(file), offset, length };
                let ranges = partition.ranges.iter().map(range).collect();
                inputs.ranges.entry((*stage, partition.partition)).or_default().push(ranges);
            }
        }
        Ok(inputs)
    }

    /// Reads partitions of a stage, one after another.
    pub(super) fn read(&self, stage: u32, partitions: &[u32], schema: SchemaRef) -> Reader {
        let written = partitions.iter().filter_map(|it| self.ranges.get(&(stage, *it)));
        let mut outputs: Vec<Vec<Range>> = written.flatten().cloned().collect();
        outputs.reverse();
        Reader { schema, outputs, current: Vec::new(), decoder: BatchDecoder::default() }
    }
}

fn missing(task: u32) -> Error {
    let why = format!("the output of task {task} was not granted");
    DataFusionError::Internal(why).into()
}

/// Reads the batches of some ranges.
pub(super) struct Reader {
    schema: SchemaRef,
    // The last one is next.
    outputs: Vec<Vec<Range>>,
    // The ranges of the output that is being read; the last one is next.
    current: Vec<Range>,
    decoder: BatchDecoder,
}

impl Reader {
    /// The next batch; `None` after the last one.
    pub(super) fn next(&mut self) -> Result<Option<RecordBatch>> {
        self.next_batch().map_err(|error| DataFusionError::External(Box::new(error.report())))
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, Error> {
        loop {
            let Some(range) = self.current.last_mut() else {
                let Some(mut output) = self.outputs.pop() else { return Ok(None) };
                output.reverse();
                self.current = output;
                // Each writer has dictionaries of its own.
                self.decoder = BatchDecoder::default();
                self.decoder.push(&BatchEncoder::default().schema(&self.schema)?)?;
                continue;
            };
            if range.length == 0 {
                self.current.pop();
                continue;
            }
            let frame = range.take_frame()?;
            if let Some(batch) = self.decoder.push(&frame)?.pop() {
                // Checks names, types and nulls.
                let options =
                    arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                let columns = batch.columns().to_vec();
                let schema = Arc::clone(&self.schema);
                return Ok(Some(RecordBatch::try_new_with_options(schema, columns, &options)?));
            }
        }
    }
}

impl Range {
    /// Reads its first frame and removes it.
    fn take_frame(&mut self) -> Result<Frame, Error> {
        let mut header = [0; HEADER_BYTES];
        self.file.read_exact_at(&mut header, self.offset).map_err(Error::Exchange)?;
        let (kind, length) = decode_header(header)?;
        let whole = (HEADER_BYTES + length) as u64;
        if kind != Kind::Batch || whole > self.length {
            return Err(WireError::Unexpected { found: kind, expected: "Batch" }.into());
        }
        let mut payload = vec![0; length];
        let start = self.offset + HEADER_BYTES as u64;
        self.file.read_exact_at(&mut payload, start).map_err(Error::Exchange)?;
        self.offset += whole;
        self.length -= whole;
        Ok(Frame::new(kind, payload))
    }
}
