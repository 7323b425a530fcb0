//! How a query is run.

use std::time::Duration;

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

/// The bytes that a task should have to read. To start a task, and to read the small tables with
/// which it joins, costs about as much as to read a quarter of them.
const TASK_BYTES: u64 = 16 << 20;

/// The divisor of a worker's memory that gives the most bytes of its task. The bytes that are read
/// are compressed, and operators keep several forms of them.
const MEMORY_OF_BYTES: u64 = 32;

/// Returns the bytes that are worth a task: `asked`, or fewer for a worker of little memory. 0
/// bytes stay 0, and a memory of 0 is not known.
pub(crate) fn worth_a_task(asked: u64, worker_memory: u64) -> u64 {
    match worker_memory {
        0 => asked,
        memory => asked.min((memory / MEMORY_OF_BYTES).max(1)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_of_little_memory_gets_fewer_bytes() {
        assert_eq!(worth_a_task(16 << 20, 1 << 30), 16 << 20);
        assert_eq!(worth_a_task(16 << 20, 64 << 20), 2 << 20);
        assert_eq!(worth_a_task(1 << 20, 64 << 20), 1 << 20);
        assert_eq!(worth_a_task(16 << 20, 0), 16 << 20);
        assert_eq!(worth_a_task(0, 64 << 20), 0);
        assert_eq!(worth_a_task(16 << 20, 1), 1);
    }
}
