//! Writes the output of a task: its batches, split into partitions, into one file.
//!
//! The rows of a partition are collected to batches of full size, and its frames in memory up to a
//! share of the task's memory. If all fits, the file has one range for each partition, one after
//! another; otherwise the largest partition is written whenever the share is full.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use arrow::compute::BatchCoalescer;
use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_plan::metrics::Time;
use datafusion::physical_plan::repartition::{BatchPartitioner, RepartitionExec};
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use snowmelt_types::Report;
use snowmelt_wire::{BatchEncoder, OutputPartition};

use crate::Error;

/// The root of a stage's plan if it says how the output is split: its input gives the rows.
/// Otherwise partition `i` of the output is partition `i` of the plan.
pub(crate) fn output_split(plan: &Arc<dyn ExecutionPlan>) -> Option<&RepartitionExec> {
    plan.downcast_ref()
}

/// The output file of a task. Shared by the threads of a task.
pub(crate) struct ExchangeWriter {
    file: File,
    batch_rows: usize,
    /// Bytes of frames that are kept in memory.
    budget: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By partition; `None` until it has rows.
    partitions: Vec<Option<Part>>,
    buffered: usize,
    end: u64,
    rows: u64,
}

struct Part {
    collected: BatchCoalescer,
    encoder: BatchEncoder,
    /// Frames that are not written yet.
    frames: Vec<u8>,
    written: OutputPartition,
}

impl Part {
    fn new(partition: u32, schema: SchemaRef, batch_rows: usize) -> Result<Self, Error> {
        let mut encoder = BatchEncoder::default();
        // The reader makes the schema's frame itself; the encoder needs it for dictionaries.
        encoder.schema(&schema)?;
        let written = OutputPartition { partition, ..OutputPartition::default() };
        let collected = BatchCoalescer::new(schema, batch_rows)
            .with_biggest_coalesce_batch_size(Some(batch_rows / 2));
        Ok(Self { collected, encoder, frames: Vec::new(), written })
    }

    /// Encodes the collected batches; gives the number of bytes.
    fn encode(&mut self) -> Result<usize, Error> {
        let before = self.frames.len();
        while let Some(batch) = self.collected.next_completed_batch() {
            let frame = self.encoder.batch(&batch)?;
            self.frames.extend_from_slice(&frame.header()?);
            self.frames.extend_from_slice(&frame.payload);
        }
        Ok(self.frames.len() - before)
    }
}

impl ExchangeWriter {
    /// Writes to `file`, which is empty, and keeps up to `budget` bytes in memory.
    pub(crate) fn new(file: File, batch_rows: usize, budget: u64) -> Self {
        let budget = usize::try_from(budget).unwrap_or(usize::MAX);
        Self { file, batch_rows, budget, state: Mutex::default() }
    }

    /// Rows so far.
    pub(crate) fn rows(&self) -> u64 {
        self.lock().rows
    }

    /// A splitter of the batches of one partition of the plan.
    pub(crate) fn splitter(partitioning: &Partitioning, partition: usize) -> Result<Splitter> {
        // Rounds of a round robin begin at another partition for each writer.
        let of = partition + 1;
        BatchPartitioner::try_new(partitioning.clone(), Time::default(), partition, of)
            .map(Splitter)
    }

    /// Adds a batch to a partition.
    pub(crate) fn add(&self, partition: u32, batch: RecordBatch) -> Result<()> {
        self.push(partition, batch)
            .map_err(|error| DataFusionError::External(Box::new(error.report())))
    }

    fn push(&self, partition: u32, batch: RecordBatch) -> Result<(), Error> {
        let mut state = self.lock();
        state.rows += batch.num_rows() as u64;
        let index = partition as usize;
        if state.partitions.len() <= index {
            state.partitions.resize_with(index + 1, || None);
        }
        let part = match &mut state.partitions[index] {
            Some(part) => part,
            empty => empty.insert(Part::new(partition, batch.schema(), self.batch_rows)?),
        };
        part.written.rows += batch.num_rows() as u64;
        part.collected.push_batch(batch)?;
        let encoded = part.encode()?;
        state.buffered += encoded;
        while state.buffered > self.budget && state.buffered > 0 {
            self.write_largest(&mut state)?;
        }
        Ok(())
    }

    fn write_largest(&self, state: &mut State) -> Result<(), Error> {
        let parts = state.partitions.iter_mut().flatten();
        let Some(part) = parts.max_by_key(|part| part.frames.len()) else { return Ok(()) };
        let written = self.write(part, state.end)?;
        state.end += written;
        state.buffered -= written as usize;
        Ok(())
    }

    fn write(&self, part: &mut Part, offset: u64) -> Result<u64, Error> {
        let length = part.frames.len() as u64;
        self.file.write_all_at(&part.frames, offset).map_err(Error::Exchange)?;
        part.frames = Vec::new();
        match part.written.ranges.last_mut() {
            Some((start, before)) if *start + *before == offset => *before += length,
            _ => part.written.ranges.push((offset, length)),
        }
        Ok(length)
    }

    /// Writes what is left, partition by partition. Gives the index of the file.
    pub(crate) fn finish(&self) -> Result<Vec<OutputPartition>, Error> {
        let mut state = self.lock();
        let mut parts = std::mem::take(&mut state.partitions);
        for part in parts.iter_mut().flatten() {
            part.collected.finish_buffered_batch()?;
            part.encode()?;
            if !part.frames.is_empty() {
                state.end += self.write(part, state.end)?;
            }
        }
        Ok(parts.into_iter().flatten().map(|part| part.written).collect())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Splits batches by the keys of their rows.
pub(crate) struct Splitter(BatchPartitioner);

impl Splitter {
    /// Adds a batch to the partitions of its rows.
    pub(crate) fn split(&mut self, batch: RecordBatch, to: &ExchangeWriter) -> Result<()> {
        self.0.partition(batch, |partition, rows| to.add(partition as u32, rows))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, StringViewArray};
    use datafusion::physical_expr::expressions::col;
    use futures::executor::block_on;
    use snowmelt_wire::TaskRead;

    use super::*;
    use crate::exchange::{FileSource, Inputs, Source};

    fn batch(numbers: std::ops::Range<i64>) -> RecordBatch {
        let text = numbers.clone().map(|n| format!("a text that is longer than a view {n}"));
        RecordBatch::try_from_iter([
            ("n", Arc::new(Int64Array::from_iter_values(numbers)) as ArrayRef),
            ("t", Arc::new(StringViewArray::from_iter_values(text))),
        ])
        .unwrap()
    }

    /// Writes 10,000 rows into 4 partitions; gives the number of ranges and all rows read back.
    fn written(budget: u64) -> (usize, Vec<i64>) {
        let file = tempfile::tempfile().unwrap();
        let writer = ExchangeWriter::new(file.try_clone().unwrap(), 512, budget);
        let keys = vec![col("n", &batch(0..1).schema()).unwrap()];
        let by_key = Partitioning::Hash(keys, 4);
        let mut splitter = ExchangeWriter::splitter(&by_key, 0).unwrap();
        for start in (0..10_000).step_by(1_000) {
            splitter.split(batch(start..start + 1_000), &writer).unwrap();
        }
        let output = writer.finish().unwrap();
        assert_eq!(output.iter().map(|part| part.rows).sum::<u64>(), 10_000);
        let ranges = output.iter().map(|part| part.ranges.len()).sum();
        let read = TaskRead { stage: 3, task: 8, partitions: output };
        let source: Arc<dyn Source> = Arc::new(FileSource::new(file));
        let inputs = Inputs::new(&[read], &[(8, source)].into()).unwrap();
        let mut rows = Vec::new();
        for partition in 0..4 {
            let mut reader = inputs.read(3, &[partition], batch(0..1).schema());
            while let Some(frame) = block_on(reader.frame()).unwrap() {
                let batch = reader.decode(&frame).unwrap().unwrap();
                let numbers = batch.column(0).as_any().downcast_ref::<Int64Array>().unwrap();
                rows.extend(numbers.values().iter().copied());
            }
        }
        rows.sort_unstable();
        (ranges, rows)
    }

    #[test]
    fn a_small_output_has_one_range_for_each_partition() {
        assert_eq!(written(64 << 20), (4, (0..10_000).collect()));
    }

    #[test]
    fn a_large_output_is_written_in_parts() {
        let (ranges, rows) = written(50_000);
        assert!(ranges > 4, "{ranges}");
        assert_eq!(rows, (0..10_000).collect::<Vec<_>>());
    }
}
