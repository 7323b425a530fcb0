//! The driver of a query: runs its tasks, stores their results and merges them.

mod answer;
mod attempt;
mod findings;
mod lanes;
mod options;
mod output;
mod progress;
mod queue;
mod result_exec;
mod runner;
mod stages;
mod tasks;

pub use answer::Answer;
pub use attempt::Attempt;
pub use options::RunOptions;
pub(crate) use output::output_schema;
pub(crate) use queue::ResultQueue;
pub(crate) use result_exec::ResultExec;
pub use runner::{PlannedTask, Reporter, RunProgress, TaskError, TaskResult, TaskRunner};
