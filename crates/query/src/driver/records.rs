//! Records of the tasks of a query, for the time when it ends, also if it ends before all are done.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use snowmelt_api::DiscardedAttempt;

use super::TaskResult;

/// The records of a query, which its answer takes.
pub(super) type Done = Arc<Mutex<Records>>;

/// The tasks of a query that are done, the attempts that did not count, and counts by stage.
#[derive(Default)]
pub(super) struct Records {
    /// By number, the tasks that are done. A task that runs again stays until it is done again.
    pub(super) finished: BTreeMap<u32, Finished>,
    /// Attempts that did not count, each with its stage.
    pub(super) discarded: Vec<(usize, DiscardedAttempt)>,
    /// Why the rows of a stage were stored that could have been streamed.
    pub(super) not_streamed: BTreeMap<usize, &'static str>,
    /// Counts of attempts by stage.
    pub(super) counts: BTreeMap<usize, Counts>,
}

/// A task that is done.
pub(super) struct Finished {
    pub(super) stage: usize,
    pub(super) task: u32,
    /// Number of earlier attempts whose workers were lost.
    pub(super) retries: u32,
    /// Bytes that the task read of other tasks' outputs.
    pub(super) received: u64,
    /// Bytes of the task's results on the wire, or of its output.
    pub(super) bytes: u64,
    /// Partitions of the task's output that have rows, each with their number.
    pub(super) output: Vec<(u32, u64)>,
    pub(super) result: TaskResult,
}

/// Attempts of a stage's tasks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) attempts: u32,
    pub(super) retries: u32,
    pub(super) remakes: u32,
    pub(super) twins: u32,
}
