//! The interface to the driver's caller, which provides workers for tasks and instances of UDFs.

use std::fs::File;

use async_trait::async_trait;
use snowmelt_api::Lane;
use snowmelt_plan::tasks::PlannedTask;
use snowmelt_types::ErrorReport;
pub use snowmelt_wire::RunProgress;
use snowmelt_wire::{GangAsk, RequestFailure, TaskDone, UdfConnection};

use crate::driver::Attempt;

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
    /// [`RunOptions::retries`](crate::driver::RunOptions) times.
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

impl From<TaskError> for RequestFailure {
    fn from(error: TaskError) -> Self {
        match error {
            TaskError::Lost { why } => Self::lost(*why),
            TaskError::LostInputs { tasks, why } => Self::lost_outputs(tasks, *why),
            TaskError::Failed(report) => Self::of(*report),
        }
    }
}

impl From<RequestFailure> for TaskError {
    fn from(failed: RequestFailure) -> Self {
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

    /// An unnamed file for results that do not fit into memory, empty. Called once for each of several
    /// queries that follow each other.
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
