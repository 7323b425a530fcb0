//! How a query is run.

use std::time::Duration;

use snowmelt_plan::tasks::TASK_BYTES;

/// The options for running a query.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Memory limit of the driver's operators in bytes.
    pub memory_bytes: u64,
    /// Maximum number of retries of a task whose worker is lost.
    pub retries: u32,
    /// Number of workers for which the query was planned.
    pub workers: u32,
    /// Bytes of other stages' outputs that are worth a task: a stage that reads fewer has fewer
    /// tasks than workers.
    pub task_bytes: u64,
    /// Bytes of files that are worth a task; 0 means a task for each worker.
    pub scan_task_bytes: u64,
    /// The rules for tasks that are slow or silent.
    pub stragglers: Stragglers,
}

/// The rules for tasks that take much longer than others of their stage (Lambada, Figure 13).
#[derive(Clone, Copy, Debug)]
pub struct Stragglers {
    /// A slow task is started a second time; the first attempt that is complete counts.
    pub racing: bool,
    /// The share of a stage's tasks, from 0 to 1, that must be done before a task counts as slow.
    pub quorum: f64,
    /// A task is slow if it runs for this many times the time that is expected from the stage's
    /// tasks that are done, and `at_least` longer.
    pub factor: f64,
    /// The time by which a task must exceed the expected time to be slow, beside `factor`.
    pub at_least: Duration,
    /// A worker from which nothing came for this time is lost: it reports its progress ten times a
    /// second.
    pub silence: Duration,
    /// If a stream broke and no task of its gang was lost for this time, the gang is given up.
    pub unexplained: Duration,
}

impl Default for Stragglers {
    fn default() -> Self {
        Self {
            racing: true,
            quorum: 0.75,
            factor: 2.0,
            at_least: Duration::from_secs(1),
            silence: Duration::from_secs(60),
            unexplained: Duration::from_secs(10),
        }
    }
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            memory_bytes: 1 << 30,
            retries: 2,
            workers: 1,
            task_bytes: TASK_BYTES,
            scan_task_bytes: TASK_BYTES,
            stragglers: Stragglers::default(),
        }
    }
}
