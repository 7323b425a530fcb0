//! The driver of a query: runs its tasks, stores their results and merges them.

mod answer;
mod attempt;
mod board;
mod failures;
mod findings;
mod gang_room;
mod gangs;
mod graph;
#[cfg(test)]
mod graph_tests;
mod lanes;
mod look;
mod memory;
mod options;
mod output;
mod progress;
mod queue;
mod racing;
mod records;
mod result_exec;
mod runner;
mod skew;
mod stage_profiles;
mod stages;
mod streams;
mod tasks;

pub use answer::Answer;
pub use attempt::Attempt;
pub(crate) use options::worth_a_task;
pub use options::{RunOptions, Stragglers};
pub(crate) use output::output_schema;
pub(crate) use queue::ResultQueue;
pub(crate) use result_exec::ResultExec;
pub use runner::{PlannedTask, Reporter, RunProgress, TaskError, TaskResult, TaskRunner};
