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
mod progress;
mod racing;
mod records;
mod runner;
mod skew;
mod stage_profiles;
mod stages;
mod streams;
mod tasks;

pub use answer::Answer;
pub use attempt::Attempt;
pub use options::{RunOptions, Stragglers};
pub use runner::{Reporter, RunProgress, TaskError, TaskResult, TaskRunner};
