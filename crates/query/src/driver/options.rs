//! How a query is run.

/// How to run a query.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Memory limit of the driver's operators.
    pub memory_bytes: u64,
    /// Maximum number of retries of a task whose worker is lost.
    pub retries: u32,
    /// Number of workers for which the query was planned.
    pub workers: u32,
    /// Bytes of other stages' outputs that are worth a task: a stage that reads fewer has fewer
    /// tasks than workers.
    pub task_bytes: u64,
}

/// What a task that only reads other stages should have to read. To start it costs about as much as
/// to read a tenth of this.
const TASK_BYTES: u64 = 4 << 20;

impl Default for RunOptions {
    fn default() -> Self {
        Self { memory_bytes: 1 << 30, retries: 2, workers: 1, task_bytes: TASK_BYTES }
    }
}
