//! The interface to the driver's caller, which provides workers for tasks and instances of UDFs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;

use async_trait::async_trait;
use bytes::Bytes;
use snowmelt_api::Lane;
use snowmelt_types::ErrorReport;
pub use snowmelt_wire::RunProgress;
use snowmelt_wire::{
    Failed, FileGrant, GangAsk, ObjectOutput, OutputPartition, S3Access, TaskAsk, TaskDone,
    TaskRead, TaskStreams, UdfConnection,
};

use super::Attempt;

/// A task of a query, ready to be sent to a worker.
#[derive(Clone, Debug, Default)]
pub struct PlannedTask {
    /// Index of the task, from 0.
    pub task: u32,
    /// The partitions of the plan that the task runs.
    pub partitions: Vec<u32>,
    /// The worker's program: the same bytes for all tasks of a stage.
    pub plan: Bytes,
    /// The local files that the task's partitions read. `path` is the absolute path to open.
    pub files: Vec<FileGrant>,
    /// Names of the UDFs that the task's program calls.
    pub udfs: Vec<String>,
    /// Access to the buckets that the task's partitions read, by bucket.
    pub s3: BTreeMap<String, S3Access>,
    /// An upper bound of the bytes that the task's partitions read from files.
    pub bytes: u64,
    /// The parts that the task reads of the outputs of tasks that have ended.
    pub reads: Vec<TaskRead>,
    /// A stage and those of its tasks whose outputs this task reads: other tasks of its own stage
    /// run the same partition on the rest. `None`: the task reads the outputs of all tasks.
    pub only: Option<(u32, BTreeSet<u32>)>,
    /// True if the task writes its batches to a file for other tasks, and sends none.
    pub output: bool,
    /// True for an attempt beside another one of the same task: it is started only if there is room
    /// for it at once that nothing else waits for, and is lost otherwise.
    pub twin: bool,
    /// The objects to which the task writes its batches instead of to a file or the driver.
    pub objects: Option<ObjectOutput>,
    /// True if the task gets a file, its scratch, for data that does not fit into its memory.
    pub scratch: bool,
    /// True if the task joins by sorting, and its operators share its memory evenly, because one of
    /// them did not fit into it.
    pub sort_merge: bool,
    /// How often the memory that the task's operators may reserve is halved: as often as the kernel
    /// has ended a worker of the task.
    pub memory_halvings: u32,
    /// How often the number of rows in the task's batches is halved.
    pub batch_halvings: u32,
    /// The streams that the task sends or receives, if it belongs to a gang.
    pub streams: Option<TaskStreams>,
    /// The number of the task's gang, for which room was reserved. `None` outside of a gang.
    pub gang: Option<u64>,
}

impl PlannedTask {
    /// Returns the request for one attempt; `plan` is the number under which the task's plan was
    /// sent.
    pub fn request(&self, plan: u32, attempt: u32) -> TaskAsk {
        TaskAsk {
            task: self.task,
            attempt,
            partitions: self.partitions.clone(),
            plan,
            files: self.files.clone(),
            udfs: self.udfs.clone(),
            s3: self.s3.clone(),
            batch_rows: (crate::context::BATCH_ROWS as u32 >> self.batch_halvings).max(1),
            reads: self.reads.clone(),
            output: self.output,
            twin: self.twin,
            objects: self.objects.clone(),
            scratch: self.scratch,
            sort_merge: self.sort_merge,
            memory_halvings: self.memory_halvings,
            streams: self.streams.clone(),
            gang: self.gang,
        }
    }

    /// Returns the bytes that the task has to read: an upper bound for files.
    pub(super) fn work(&self) -> u64 {
        let received = self.reads.iter().flat_map(|read| &read.partitions);
        self.bytes + received.map(OutputPartition::bytes).sum::<u64>()
    }
}

/// The result of a successful attempt.
#[derive(Clone, Debug, Default)]
pub struct TaskResult {
    /// The worker's report, as returned by [`crate::follow()`].
    pub done: TaskDone,
    /// The worker's lane. The runner sets `cold`, `asked_us`, `ready_us`, `done_us` (since the
    /// query was accepted) and `peak_memory`; the driver fills in the rest.
    pub worker: Lane,
    /// Lanes of the UDF instances that served this task, complete.
    pub udfs: Vec<Lane>,
}

/// Why an attempt has no result.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The worker was lost: another one may succeed. Retried up to
    /// [`RunOptions::retries`](super::RunOptions) times.
    #[error("{}", why.message)]
    Lost {
        /// The reason; shown if no attempt succeeds.
        why: Box<ErrorReport>,
    },
    /// Outputs of other tasks that the attempt reads are gone: another attempt can succeed once
    /// these tasks were run again.
    #[error("{}", why.message)]
    LostInputs {
        /// The tasks, each named among the task's reads.
        tasks: Vec<u32>,
        /// The reason; shown if the outputs cannot be made again.
        why: Box<ErrorReport>,
    },
    /// A permanent failure: the query fails.
    #[error("{}", .0.message)]
    Failed(Box<ErrorReport>),
}

impl TaskError {
    /// Creates the error of a lost worker.
    pub fn lost(why: ErrorReport) -> Self {
        Self::Lost { why: Box::new(why) }
    }

    /// Creates the error of lost outputs of `tasks`.
    pub fn lost_inputs(tasks: Vec<u32>, why: ErrorReport) -> Self {
        Self::LostInputs { tasks, why: Box::new(why) }
    }

    /// Creates the error of a permanent failure.
    pub fn failed(report: ErrorReport) -> Self {
        Self::Failed(Box::new(report))
    }
}

impl From<TaskError> for Failed {
    fn from(error: TaskError) -> Self {
        match error {
            TaskError::Lost { why } => Self::lost(*why),
            TaskError::LostInputs { tasks, why } => Self::lost_outputs(tasks, *why),
            TaskError::Failed(report) => Self::of(*report),
        }
    }
}

impl From<Failed> for TaskError {
    fn from(failed: Failed) -> Self {
        match (failed.lost, failed.outputs.is_empty()) {
            (true, true) => Self::Lost { why: failed.report },
            (true, false) => Self::LostInputs { tasks: failed.outputs, why: failed.report },
            (false, _) => Self::Failed(failed.report),
        }
    }
}

/// Runs tasks on workers; implemented by the control plane. All futures may be dropped at any time,
/// which cancels them: leased resources must then be returned.
#[async_trait]
pub trait TaskRunner: Send + Sync {
    /// Announces, before the first [`TaskRunner::run`] of a stage, its tasks, which will run
    /// concurrently, so that the runner can acquire the resources of all of them in one request.
    fn expect(&self, _tasks: &mut dyn Iterator<Item = &PlannedTask>) {}

    /// Reserves room for all tasks of a gang at once, and connects each task that sends with each
    /// task that receives. Returns the gang's number, with which its tasks are run; `None` if there
    /// is no room for all of them now: this never waits for room.
    async fn reserve(&self, _gang: &GangAsk) -> Option<u64> {
        None
    }

    /// Gives back the room of a gang: none of its tasks runs any more, and none will.
    fn disband(&self, _gang: u64) {}

    /// Runs one attempt of one task: leases a worker, grants files, inputs and UDFs
    /// ([`snowmelt_wire::hand_over()`]), and follows it ([`crate::follow()`]). It is called for all
    /// tasks of a stage concurrently; the runner may delay some of them. The output of a task whose
    /// attempt succeeds is kept for the tasks that read it.
    async fn run(&self, task: &PlannedTask, attempt: &mut Attempt)
    -> Result<TaskResult, TaskError>;

    /// Announces that the outputs of some tasks are not read any more.
    fn release(&self, _tasks: &[u32]) {}

    /// Connects the driver itself to an instance of a UDF: `select f(sum(x))` calls `f` above the
    /// cut. The connection is kept until the query ends.
    async fn connect(&self, udf: &str) -> Result<UdfConnection, ErrorReport>;

    /// An unnamed file for results that do not fit into memory. Called at most once.
    fn spool(&self) -> std::io::Result<File> {
        tempfile::tempfile()
    }
}

/// Receives events of a running query. Called often and from any thread: must not block.
pub trait Reporter: Send + Sync {
    /// The progress of the tasks. At most about ten times a second for each task.
    fn progress(&self, progress: RunProgress);

    /// Reports that all tasks are done, and the driver merges the results.
    fn merging(&self) {}

    /// A note for the user that is not a failure (a task is retried).
    fn note(&self, text: &str);
}
