//! Destinations of the batches of a task: the driver, or the task's output: a file, objects, or
//! streams.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use futures::TryStreamExt;
use snowmelt_types::{Code, ErrorReport, Report};
use snowmelt_wire::{Task, TaskStreams};

use super::outbox::Outbox;
use crate::Error;
use crate::exchange::{
    ExchangeWriter, FileTarget, LevelOfTask, ObjectTarget, OutputTarget, Stores, StreamTarget,
    output_split,
};
use crate::sort_keys::SortKeys;

/// The output of a task, and how its rows are split.
pub(super) struct Sink {
    pub(super) writer: ExchangeWriter,
    split: Option<Partitioning>,
    level: LevelOfTask,
}

/// The sink of a task, if it has one, and the part of its plan that gives the rows.
type Divided = (Option<Sink>, Arc<dyn ExecutionPlan>);

impl Sink {
    /// Divides a decoded plan.
    pub(super) fn of(
        output: Option<File>,
        streams: Vec<(u32, UnixStream)>,
        plan: Arc<dyn ExecutionPlan>,
        task: &Task,
        stores: &Arc<Stores>,
    ) -> Result<Divided, Box<ErrorReport>> {
        let mut budget = (task.memory_bytes / OUTPUT_SHARE).min(OUTPUT_BYTES);
        let receivers = match &task.streams {
            Some(TaskStreams::Send(receivers)) => Some(receivers),
            Some(TaskStreams::Receive { .. }) | None => None,
        };
        let target: Box<dyn OutputTarget> = match (task.output, output, &task.objects, receivers) {
            (false, None, None, None) => return Ok((None, plan)),
            (true, Some(file), None, None) => Box::new(FileTarget::new(file)),
            (false, None, None, Some(receivers)) => {
                // A batch is sent as soon as it has its size.
                let waiting = std::mem::take(&mut budget).min(STREAM_BYTES);
                let target = StreamTarget::new(receivers, streams, waiting);
                Box::new(target.map_err(|error| error.report())?)
            }
            (false, None, Some(objects), None) => {
                let at = objects.at.clone();
                let writer = (task.task, task.attempt);
                Box::new(ObjectTarget::new(Arc::clone(stores), at, writer, budget))
            }
            _ => {
                let message = "a task and its grants disagree about its output";
                return Err(ErrorReport::new(Code::PROTOCOL, message).into());
            }
        };
        let (split, plan) = match output_split(&plan) {
            Some(split) => (Some(split.partitioning().clone()), Arc::clone(split.input())),
            None => (None, plan),
        };
        let parts = split.as_ref().map_or(1, Partitioning::partition_count);
        let rows = (COLLECTED_ROWS / parts).clamp(1024, task.batch_rows.max(1024) as usize);
        let keys = sorted_by(&plan).map_err(|error| Error::from(error).report())?;
        let writer = ExchangeWriter::new(target, rows, budget).sorted_by(keys);
        let unit = task.objects.as_ref().map_or(1, |objects| objects.unit);
        let level = LevelOfTask { unit, own: task.partitions.first().copied().unwrap_or(0) };
        Ok((Some(Self { writer, split, level }), plan))
    }
}

/// The keys by which a plan sorts its rows, if it ends with that.
fn sorted_by(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<SortKeys>, DataFusionError> {
    match plan.downcast_ref::<SortExec>() {
        Some(sort) => SortKeys::new(sort.expr(), &sort.schema()),
        None => Ok(None),
    }
}

/// Rows that all partitions of an output collect, to write batches of good size.
const COLLECTED_ROWS: usize = 256 << 10;

/// The divisor of a task's memory, and the most bytes, for what its output keeps before it is
/// written.
const OUTPUT_SHARE: u64 = 8;
const OUTPUT_BYTES: u64 = 64 << 20;

/// The most bytes that wait because the tasks that receive them are slow.
const STREAM_BYTES: u64 = 16 << 20;

/// The destination of the batches of a task.
pub(super) enum Destination {
    Driver(Arc<Outbox>),
    Output(Arc<Sink>),
}

/// The error of a partition.
pub(super) struct PartitionError {
    pub(super) partition: u32,
    pub(super) error: DataFusionError,
}

/// Runs partition `index` of a narrowed plan, which is posted as `partition`.
pub(super) async fn run_partition(
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    index: usize,
    partition: u32,
    to: Destination,
) -> Result<(), PartitionError> {
    let stopped = |error| PartitionError { partition, error };
    let mut stream = plan.execute(index, context).map_err(stopped)?;
    let mut splitter = match &to {
        Destination::Output(sink) => sink.split.as_ref().map(|split| {
            let splitter = ExchangeWriter::splitter(split, partition as usize, sink.level);
            splitter.map_err(stopped)
        }),
        Destination::Driver(_) => None,
    }
    .transpose()?;
    while let Some(batch) = stream.try_next().await.map_err(stopped)? {
        if batch.num_rows() == 0 {
            continue;
        }
        match (&to, &mut splitter) {
            (Destination::Driver(outbox), _) => {
                let posted = outbox.batch(partition, &batch);
                posted.map_err(|error| stopped(DataFusionError::External(error.into())))?;
            }
            (Destination::Output(sink), Some(splitter)) => {
                splitter.split(batch, &sink.writer).map_err(stopped)?;
            }
            (Destination::Output(sink), None) => {
                sink.writer.add(partition, batch).map_err(stopped)?;
            }
        }
        if let Destination::Output(sink) = &to {
            sink.writer.settle().await.map_err(stopped)?;
            if !sink.writer.is_wanted() {
                break;
            }
        }
    }
    Ok(())
}
