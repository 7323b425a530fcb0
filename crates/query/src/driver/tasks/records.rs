//! Records of the tasks of a query, for the time when it ends, also if it ends before all are done.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use snowmelt_api::DiscardedAttempt;

use crate::driver::TaskResult;

/// The records of a query, which its answer takes.
pub(crate) type SharedRecords = Arc<Mutex<TaskRecords>>;

/// The tasks of a query that are done, the attempts that did not count, and counts by stage.
#[derive(Default)]
pub(crate) struct TaskRecords {
    /// By number, the tasks that are done. A task that runs again stays until it is done again.
    pub(crate) finished: BTreeMap<u32, Finished>,
    /// Attempts that did not count, each with its stage.
    pub(crate) discarded: Vec<(usize, DiscardedAttempt)>,
    /// Why the rows of a stage were stored that could have been streamed.
    pub(crate) not_streamed: BTreeMap<usize, &'static str>,
    /// Counts of attempts by stage.
    pub(crate) counts: BTreeMap<usize, AttemptCounts>,
}

/// A task that is done.
pub(crate) struct Finished {
    pub(crate) stage: usize,
    pub(crate) task: u32,
    /// Number of earlier attempts whose workers were lost.
    pub(crate) retries: u32,
    /// Bytes that the task read of other tasks' outputs.
    pub(crate) received: u64,
    /// Bytes of the task's results on the wire, or of its output.
    pub(crate) bytes: u64,
    /// Partitions of the task's output that have rows, each with their number.
    pub(crate) output: Vec<(u32, u64)>,
    pub(crate) result: TaskResult,
}

/// Attempts of a stage's tasks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AttemptCounts {
    pub(crate) attempts: u32,
    pub(crate) retries: u32,
    pub(crate) remakes: u32,
    pub(crate) twins: u32,
}
