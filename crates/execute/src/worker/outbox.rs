//! Sends the results of a task: batches by partition, progress, and a final frame.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use snowmelt_types::ErrorReport;
use snowmelt_wire::{
    BatchEncoder, Frame, FrameStream, Kind, Result, TaskDone, TaskFailure, TaskProgress,
    decode_schema,
};

/// Metadata key of a schema frame: the partition of the batches that follow it.
const PARTITION: &str = "snowmelt.partition";

/// The sending side of a task's connection, shared by the threads of a task.
pub(super) struct Outbox {
    state: Mutex<State>,
}

struct State {
    stream: FrameStream,
    encoder: BatchEncoder,
    partition: Option<u32>,
    rows: u64,
}

impl Outbox {
    pub(super) fn new(stream: FrameStream) -> Self {
        let state = State { stream, encoder: BatchEncoder::default(), partition: None, rows: 0 };
        Self { state: Mutex::new(state) }
    }

    /// Posts a batch of a partition's results. Blocks while the driver reads more slowly.
    pub(super) fn batch(&self, partition: u32, batch: &RecordBatch) -> Result<()> {
        let mut state = self.lock();
        if state.partition != Some(partition) {
            state.begin(partition, &batch.schema())?;
        }
        let frame = state.encoder.batch(batch)?;
        state.stream.send(&frame)?;
        state.rows += batch.num_rows() as u64;
        Ok(())
    }

    /// Reports the task's progress.
    pub(super) fn progress(&self, progress: &TaskProgress) -> Result<()> {
        self.lock().stream.send(&Frame::json(Kind::Progress, progress)?)
    }

    /// Reports that the results are complete.
    pub(super) fn done(&self, done: &TaskDone) -> Result<()> {
        self.lock().stream.send(&Frame::json(Kind::Done, done)?)
    }

    /// Reports that the task failed; `lost` are the tasks whose outputs it found gone.
    pub(super) fn failure(&self, report: ErrorReport, lost: Vec<u32>) -> Result<()> {
        self.lock().stream.send(&Frame::json(Kind::Failure, &TaskFailure { report, lost })?)
    }

    /// Rows posted so far.
    pub(super) fn rows(&self) -> u64 {
        self.lock().rows
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn begin(&mut self, partition: u32, schema: &Schema) -> Result<()> {
        // A new encoder, because dictionaries of another partition do not apply here.
        self.encoder = BatchEncoder::default();
        let metadata = HashMap::from([(PARTITION.to_owned(), partition.to_string())]);
        let schema = schema.clone().with_metadata(metadata);
        let frame = self.encoder.schema(&schema)?;
        self.stream.send(&frame)?;
        self.partition = Some(partition);
        Ok(())
    }
}

/// The partition in a schema frame of a worker.
pub fn partition_of(frame: &Frame) -> Result<u32> {
    let schema = decode_schema(&frame.payload)?;
    let named = schema.metadata().get(PARTITION).and_then(|text| text.parse().ok());
    named.ok_or_else(|| {
        let message = "a worker's schema names no partition".to_owned();
        arrow::error::ArrowError::IpcError(message).into()
    })
}
