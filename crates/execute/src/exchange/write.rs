//! Writes the output of a task: its batches, split into partitions.
//!
//! The rows of a partition are collected to batches of full size, and its frames in memory up to a
//! share of the task's memory. If all fits, the output has one range for each partition, one after
//! another. Otherwise, whenever the share is full, the largest partition is written, or all of them
//! where each write is a request.

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

use super::levels::cell;
use super::marks::Marks;
use super::target::{OutputPiece, OutputTarget};
use crate::Error;
use crate::sort_keys::SortKeys;

/// Returns the root of a stage's plan if it says how the output is split: its input gives the rows.
/// `None`: partition `i` of the output is partition `i` of the plan.
pub fn output_split(plan: &Arc<dyn ExecutionPlan>) -> Option<&RepartitionExec> {
    plan.downcast_ref()
}

/// The output of a task. Shared by the threads of a task.
pub(crate) struct ExchangeWriter {
    target: Box<dyn OutputTarget>,
    batch_rows: usize,
    /// Bytes of frames that are kept in memory.
    budget: usize,
    /// The keys by which each partition is sorted, if it gets marks.
    sorted_by: Option<SortKeys>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The parts of the output by partition; `None` until a partition has rows.
    partitions: Vec<Option<PartitionBuffer>>,
    buffered: usize,
    rows: u64,
}

struct PartitionBuffer {
    collected: BatchCoalescer,
    encoder: BatchEncoder,
    /// Frames that are not written yet.
    frames: Vec<u8>,
    written: OutputPartition,
    marks: Marks,
}

impl PartitionBuffer {
    fn new(partition: u32, schema: SchemaRef, batch_rows: usize) -> Result<Self, Error> {
        let mut encoder = BatchEncoder::default();
        // The reader makes the schema's frame itself; the encoder needs it for dictionaries.
        encoder.schema(&schema)?;
        let written = OutputPartition { partition, ..OutputPartition::default() };
        let collected = BatchCoalescer::new(schema, batch_rows)
            .with_biggest_coalesce_batch_size(Some(batch_rows / 2));
        Ok(Self { collected, encoder, frames: Vec::new(), written, marks: Marks::default() })
    }

    /// Encodes the collected batches; gives the number of bytes.
    fn encode(&mut self, sorted_by: Option<&SortKeys>) -> Result<usize, Error> {
        let before = self.frames.len();
        while let Some(batch) = self.collected.next_completed_batch() {
            let frame = self.encoder.batch(&batch)?;
            let begin = self.frames.len();
            self.frames.extend_from_slice(&frame.header()?);
            self.frames.extend_from_slice(&frame.payload);
            if let Some(keys) = sorted_by {
                self.marks.add(&batch, keys, (self.frames.len() - begin) as u64)?;
            }
        }
        Ok(self.frames.len() - before)
    }
}

impl ExchangeWriter {
    /// Creates a writer that writes to `target` and keeps up to `budget` bytes in memory.
    pub(crate) fn new(target: Box<dyn OutputTarget>, batch_rows: usize, budget: u64) -> Self {
        let budget = usize::try_from(budget).unwrap_or(usize::MAX);
        Self { target, batch_rows, budget, sorted_by: None, state: Mutex::default() }
    }

    /// Adds marks by `keys`, by which the rows of each partition are sorted.
    pub(crate) fn sorted_by(self, keys: Option<SortKeys>) -> Self {
        Self { sorted_by: keys, ..self }
    }

    /// Returns the number of rows written so far.
    pub(crate) fn rows(&self) -> u64 {
        self.lock().rows
    }

    /// A splitter of the batches of one partition of the plan. It sends rows to the cells of a level
    /// of the exchange.
    pub(crate) fn splitter(
        partitioning: &Partitioning,
        partition: usize,
        level: LevelOfTask,
    ) -> Result<Splitter> {
        // Rounds of a round robin begin at another partition for each writer.
        let of = partition + 1;
        let by_key =
            BatchPartitioner::try_new(partitioning.clone(), Time::default(), partition, of)?;
        Ok(Splitter { by_key, level })
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
            empty => {
                empty.insert(PartitionBuffer::new(partition, batch.schema(), self.batch_rows)?)
            }
        };
        part.written.rows += batch.num_rows() as u64;
        part.collected.push_batch(batch)?;
        let encoded = part.encode(self.sorted_by.as_ref())?;
        state.buffered += encoded;
        while state.buffered > self.budget && state.buffered > 0 {
            self.make_room(&mut state)?;
        }
        Ok(())
    }

    fn make_room(&self, state: &mut State) -> Result<(), Error> {
        let mut parts: Vec<&mut PartitionBuffer> = state.partitions.iter_mut().flatten().collect();
        // A file is written at any place, so the one partition that frees most memory is enough.
        if !self.target.writes_all() {
            parts.sort_by_key(|part| std::cmp::Reverse(part.frames.len()));
            parts.truncate(1);
        }
        state.buffered -= self.write(parts)?;
        Ok(())
    }

    /// Writes the frames that some partitions have in memory. Returns the number of bytes.
    fn write<'p>(
        &self,
        parts: impl IntoIterator<Item = &'p mut PartitionBuffer>,
    ) -> Result<usize, Error> {
        let mut parts: Vec<&mut PartitionBuffer> =
            parts.into_iter().filter(|part| !part.frames.is_empty()).collect();
        let take = |part: &mut &mut PartitionBuffer| OutputPiece {
            partition: part.written.partition,
            frames: std::mem::take(&mut part.frames),
        };
        let pieces: Vec<OutputPiece> = parts.iter_mut().map(take).collect();
        let lengths: Vec<usize> = pieces.iter().map(|piece| piece.frames.len()).collect();
        let places = self.target.write(pieces)?;
        for ((part, place), length) in parts.into_iter().zip(places).zip(&lengths) {
            let written = &mut part.written;
            match (place.object, written.ranges.last_mut()) {
                // One range instead of two: a reader sends fewer requests.
                (None, Some((start, before))) if *start + *before == place.offset => {
                    *before += *length as u64;
                }
                _ => written.ranges.push((place.offset, *length as u64)),
            }
            written.objects.extend(place.object);
        }
        Ok(lengths.iter().sum())
    }

    /// False once nobody reads the output any more.
    pub(crate) fn is_wanted(&self) -> bool {
        self.target.is_wanted()
    }

    /// Waits until few bytes are on their way.
    pub(crate) async fn settle(&self) -> Result<()> {
        let settled = self.target.settle(false).await;
        settled.map_err(|error| DataFusionError::External(Box::new(error.report())))
    }

    /// Writes the remaining rows, partition by partition. Returns the index of the output.
    pub(crate) async fn finish(&self) -> Result<Vec<OutputPartition>, Error> {
        let mut parts = std::mem::take(&mut self.lock().partitions);
        for part in parts.iter_mut().flatten() {
            part.collected.finish_buffered_batch()?;
            part.encode(self.sorted_by.as_ref())?;
        }
        // All at once, so that a small output is one piece of its file, or one object.
        self.write(parts.iter_mut().flatten())?;
        // Before the index is returned: with it the driver tells other tasks that they can read.
        self.target.settle(true).await?;
        let written =
            |part: PartitionBuffer| OutputPartition { marks: part.marks.finish(), ..part.written };
        Ok(parts.into_iter().flatten().map(written).collect())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The level of an exchange that a task writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LevelOfTask {
    /// The divisor of partition numbers at the level (`Level::unit`); 1 for the last level.
    pub(crate) unit: u32,
    /// The cell of the task.
    pub(crate) own: u32,
}

/// Splits batches by the keys of their rows.
pub(crate) struct Splitter {
    by_key: BatchPartitioner,
    level: LevelOfTask,
}

impl Splitter {
    /// Adds a batch to the partitions of its rows.
    pub(crate) fn split(&mut self, batch: RecordBatch, to: &ExchangeWriter) -> Result<()> {
        let LevelOfTask { unit, own } = self.level;
        self.by_key
            .partition(batch, |partition, rows| to.add(cell(unit, partition as u32, own), rows))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, StringViewArray};
    use datafusion::physical_expr::expressions::col;
    use futures::executor::block_on;
    use snowmelt_wire::TaskRead;

    use super::*;
    use crate::exchange::decoder::FrameReader;
    use crate::exchange::{FileSource, FileTarget, Inputs, OutputSource};

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
        let target = Box::new(FileTarget::new(file.try_clone().unwrap()));
        let writer = ExchangeWriter::new(target, 512, budget);
        let keys = vec![col("n", &batch(0..1).schema()).unwrap()];
        let by_key = Partitioning::Hash(keys, 4);
        let mut splitter =
            ExchangeWriter::splitter(&by_key, 0, LevelOfTask { unit: 1, own: 0 }).unwrap();
        for start in (0..10_000).step_by(1_000) {
            splitter.split(batch(start..start + 1_000), &writer).unwrap();
        }
        let output = block_on(writer.finish()).unwrap();
        assert_eq!(output.iter().map(|part| part.rows).sum::<u64>(), 10_000);
        let ranges = output.iter().map(|part| part.ranges.len()).sum();
        let partitions = output;
        let objects = None;
        let range = None;
        let shared = false;
        let read = TaskRead { stage: 3, task: 8, attempt: 0, partitions, objects, shared, range };
        let source: Arc<dyn OutputSource> = Arc::new(FileSource::new(file));
        let inputs = Inputs::new(&[read], &[(8, source)].into(), &Arc::default(), 1 << 20).unwrap();
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
