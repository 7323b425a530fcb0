//! The interface to the driver's caller, and what a query is run with.
//!
//! | member | owns |
//! |---|---|
//! | `task_runner` | what the caller provides: workers for tasks, instances of UDFs |
//! | `attempt` | a running attempt, as the caller sees it |
//! | `gang_room` | room for a gang, for all of its tasks |
//! | `numbered` | the numbers of the tasks of queries that follow each other |
//! | `options` | how a query is run |

mod attempt;
mod gang_room;
mod numbered;
mod options;
mod task_runner;

pub use attempt::Attempt;
pub(crate) use attempt::{AttemptClock, OnProgress};
pub(crate) use gang_room::{Reserving, reserve};
pub(crate) use numbered::NumberedRunner;
pub use options::{RunOptions, Stragglers};
pub use task_runner::{Reporter, RunProgress, TaskError, TaskResult, TaskRunner};
