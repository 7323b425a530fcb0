//! What the driver asks of its caller: workers for tasks and instances for UDFs.

use std::collections::BTreeMap;
use std::fs::File;

use async_trait::async_trait;
use bytes::Bytes;
use snowmelt_api::Lane;
use snowmelt_types::ErrorReport;
pub use snowmelt_wire::RunProgress;
use snowmelt_wire::{Failed, FileGrant, S3Access, TaskAsk, TaskDone, UdfConnection};

use super::Attempt;

/// One worker's share of a query, ready to be sent.
#[derive(Clone, Debug)]
pub struct PlannedTask {
    /// Which task of the query this is, from 0.
    pub task: u32,
    /// The partitions of the plan that it runs.
    pub partitions: Vec<u32>,
    /// The worker's program: the same bytes for all tasks of a fragment.
    pub plan: Bytes,
    /// The local files that its partitions read. `path` is the absolute path to open.
    pub files: Vec<FileGrant>,
    /// Names of the UDFs that its program calls.
    pub udfs: Vec<String>,
    /// Access to the buckets that its partitions read.
    pub s3: BTreeMap<String, S3Access>,
    /// Bytes of the parts of files that its partitions read: an upper bound.
    pub bytes: u64,
}

impl PlannedTask {
    /// The request for one attempt of it; `plan` is the number under which its plan was sent.
    pub fn request(&self, plan: u32, attempt: u32) -> TaskAsk {
        TaskAsk {
            task: self.task,
            attempt,
            partitions: self.partitions.clone(),
            plan,
            files: self.files.clone(),
            udfs: self.udfs.clone(),
            s3: self.s3.clone(),
            batch_rows: crate::plan::BATCH_ROWS as u32,
        }
    }
}

/// What a successful attempt reports.
#[derive(Clone, Debug, Default)]
pub struct TaskResult {
    /// The worker's own report: what [`crate::follow()`] returned.
    pub done: TaskDone,
    /// The worker's lane. The runner knows `cold`, `asked_us`, `ready_us`, `done_us` (since the
    /// query was accepted) and `peak_memory`; the driver fills in the rest.
    pub worker: Lane,
    /// Lanes of the UDF instances that served this task, complete.
    pub udfs: Vec<Lane>,
}

/// Why an attempt has no result.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The worker is gone: another one may succeed. Tried again up to
    /// [`RunOptions::retries`](super::RunOptions) times.
    #[error("{}", why.message)]
    Lost {
        /// What is known of it; shown if no attempt succeeds.
        why: Box<ErrorReport>,
    },
    /// The same input fails again: the query fails.
    #[error("{}", .0.message)]
    Failed(Box<ErrorReport>),
}

impl TaskError {
    /// A worker that is gone.
    pub fn lost(why: ErrorReport) -> Self {
        Self::Lost { why: Box::new(why) }
    }

    /// A failure that would come again.
    pub fn failed(report: ErrorReport) -> Self {
        Self::Failed(Box::new(report))
    }
}

impl From<TaskError> for Failed {
    fn from(error: TaskError) -> Self {
        match error {
            TaskError::Lost { why } => Self::lost(*why),
            TaskError::Failed(report) => Self::of(*report),
        }
    }
}

impl From<Failed> for TaskError {
    fn from(failed: Failed) -> Self {
        match failed.lost {
            true => Self::Lost { why: failed.report },
            false => Self::Failed(failed.report),
        }
    }
}

/// Runs tasks on workers; implemented by the control plane. All futures may be dropped at any
/// moment, which cancels: whatever was leased must then be given back.
#[async_trait]
pub trait TaskRunner: Send + Sync {
    /// Tells before the first [`TaskRunner::run`] which tasks will be asked for at once, so that
    /// the runner can ask for what all of them need in one request.
    fn expect(&self, _tasks: &mut dyn Iterator<Item = &PlannedTask>) {}

    /// Runs one attempt of one task: leases a worker, grants files and UDFs
    /// ([`snowmelt_wire::hand_over()`]), and follows it ([`crate::follow()`]). All tasks of a query are asked
    /// for at once; the runner may make some wait.
    async fn run(&self, task: &PlannedTask, attempt: &mut Attempt)
    -> Result<TaskResult, TaskError>;

    /// An instance of a UDF for the driver itself: `select f(sum(x))` calls `f` above the cut. Held
    /// until the query ends.
    async fn connect(&self, udf: &str) -> Result<UdfConnection, ErrorReport>;

    /// A file without a name, for results that do not fit into memory. Asked for at most once.
    fn spool(&self) -> std::io::Result<File> {
        tempfile::tempfile()
    }
}

/// Told what happens while a query runs. Called often and from any thread: must not block.
pub trait Reporter: Send + Sync {
    /// The tasks are this far. At most about ten times a second for each task.
    fn progress(&self, progress: RunProgress);

    /// All tasks are done; the driver merges.
    fn merging(&self) {}

    /// Something that the user should know and that is no failure (a task is run again).
    fn note(&self, text: &str);
}
