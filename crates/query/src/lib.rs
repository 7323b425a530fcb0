//! The driver of queries: runs a planned query in workers and merges their results. And the program
//! of drivers and workers.
//!
//! A query has four steps:
//!
//! 1. [`plan()`] of `snowmelt_plan` parses and optimises the SQL and cuts the physical plan into stages, each one
//!    program for several workers, and the driver's part (Lambada 3.2).
//! 2. The caller's [`TaskRunner`] leases a worker for each [`PlannedTask`], grants it files, outputs
//!    of other tasks and UDFs over its connection ([`snowmelt_wire::hand_over()`]), and follows it
//!    ([`follow()`]).
//! 3. In the worker's sandbox, [`serve`] has [`snowmelt_execute::worker`] run the task's partitions
//!    of the program. It writes their batches to a file for the tasks of another stage, or posts them
//!    to the driver (Lambada 3.3 and 4.4).
//! 4. [`QueryAnswer::start`] runs each stage once those that it reads are complete, retries lost
//!    tasks, and merges the results: a [`QueryAnswer`] is a stream of batches, followed by a
//!    `Profile` of `snowmelt_api`.
//!
//! Rooms use those above them in this table only:
//!
//! | room | owns |
//! |---|---|
//! | `driver` | runs the tasks, merges their results |
//! | `driver_process` | the driver's process, and its requests to the platform |
//! | `service` | the connections that a process answers |
//!
//! Boundary: this crate starts no process and creates no sandbox. Code in a worker opens no path:
//! it reads granted descriptors and S3. The invariant of the cut: an attempt's rows count only once
//! the attempt is complete, so a retried task never duplicates a row.

mod driver;
mod driver_process;
mod service;

pub use snowmelt_execute::{Error, Result};
pub use snowmelt_plan::prices::CostBasis;
pub use snowmelt_plan::query::{PlannedQuery, plan};
pub use snowmelt_plan::spec::{HostFiles, LocalFiles, QuerySpec, RANGE_SORT_BYTES};
pub use snowmelt_plan::tasks::PlannedTask;

pub use driver::{
    Attempt, ListedQuery, QueryAnswer, Reporter, RunOptions, RunProgress, Stragglers, TaskError,
    TaskResult, TaskRunner,
};
pub use driver_process::follow;
pub use service::{serve, serve_connection};
