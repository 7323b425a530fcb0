//! The query engine: plans SQL, cuts the plan for workers, runs it and merges the results. Built on
//! DataFusion.
//!
//! A query has four steps, each a module:
//!
//! 1. [`plan()`] parses and optimises the SQL and cuts the physical plan into stages, each one
//!    program for several workers, and the driver's part (Lambada 3.2).
//! 2. The caller's [`TaskRunner`] leases a worker for each [`PlannedTask`], grants it files, outputs
//!    of other tasks and UDFs over its connection ([`snowmelt_wire::hand_over()`]), and follows it
//!    ([`follow()`]).
//! 3. In the worker's sandbox, [`serve`] runs the task's partitions of the program. It
//!    writes their batches to a file for the tasks of another stage, or posts them to the driver
//!    (Lambada 3.3 and 4.4).
//! 4. [`PlannedQuery::run`] runs each stage once those that it reads are complete, retries lost
//!    tasks, and merges the results: an [`Answer`] is a stream of batches, followed by a `Profile`
//!    of `snowmelt_api`.
//!
//! Boundary: this crate starts no process and creates no sandbox. Code in a worker opens no path:
//! it reads granted descriptors and S3. The invariant of the cut: an attempt's rows count only once
//! the attempt is complete, so a retried task never duplicates a row.

mod checked;
mod codec;
mod context;
mod cost;
mod cpu;
mod drive;
mod driver;
mod error;
mod everyday;
mod exchange;
mod faster;
mod fault;
mod operator_text;
mod panics;
mod paths;
mod plan;
mod prices;
mod query;
mod read;
mod results;
mod scan;
mod service;
mod sort_keys;
mod task;
mod tree;
mod udf;
mod worker;

pub use drive::follow;
pub use driver::{
    Answer, Attempt, Reporter, RunOptions, RunProgress, Stragglers, TaskError, TaskResult,
    TaskRunner,
};
pub use error::Error;
pub use exchange::{Cleaner, ExchangePrices, ExchangeRequests, ObjectExchange};
pub use plan::{HostFiles, LocalFiles, QuerySpec, RANGE_SORT_BYTES};
pub use prices::CostBasis;
pub use query::{PlannedQuery, plan};
pub use service::{serve, serve_connection};
pub use task::PlannedTask;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
