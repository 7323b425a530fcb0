//! From SQL to an answer: plan, cut for workers, scan, run, merge. Built on DataFusion.
//!
//! One query in four steps, each a module:
//!
//! 1. [`plan()`] parses and optimises the SQL and cuts the physical plan: below the cut one program
//!    for all workers, above it the driver's own part (Lambada 3.2).
//! 2. The caller's [`TaskRunner`] leases a worker for each [`PlannedTask`], grants it files and
//!    UDFs over its connection ([`snowmelt_wire::hand_over()`]), and takes what it posts ([`follow()`]).
//! 3. In the worker's sandbox [`worker::serve`] answers: it runs its share of the program's
//!    partitions and posts batches and metrics back (Lambada 3.3).
//! 4. [`PlannedQuery::run`] runs all tasks at once, runs lost ones again, and merges: an [`Answer`]
//!    is a stream of batches and, after the last one, a [`Profile`].
//!
//! Boundary: this crate starts no process and makes no sandbox. What runs in a worker opens no
//! path: it reads granted descriptors and S3. The invariant of the cut: an attempt's rows count
//! only once the attempt is whole, so a task that is run again never doubles a row.

mod checked;
mod codec;
mod dispatch;
mod driver;
mod error;
mod faster;
mod fault;
mod plan;
mod scan;
mod udf;
pub mod worker;

pub use dispatch::follow;
pub use driver::{
    Answer, Attempt, PlannedTask, Reporter, RunOptions, RunProgress, TaskError, TaskResult,
    TaskRunner,
};
pub use error::Error;
pub use plan::{HostFiles, LocalFiles, PlannedQuery, QuerySpec, plan};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
