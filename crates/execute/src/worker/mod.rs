//! The worker, in its sandbox: receives a task, runs its partitions and posts the results.
//!
//! A worker opens no path and starts no process. Over the connection of a task the node sends
//! descriptors for files and UDFs, then the plan, then the task. Nothing that costs memory or time is
//! created before the first task.
//!
//! The results of partition `p` follow a schema frame whose metadata contains `p`. Batches of
//! several partitions may alternate; a schema frame precedes each change.

mod damage;
mod executor;
mod huge_pages;
mod inbox;
mod memory;
mod metrics;
mod outbox;
mod scratch;
mod short_tasks;
mod sink;
mod stores;
mod task;
mod task_plan;
mod watch;

pub use huge_pages::turn_off as turn_off_huge_pages;
pub use memory::PeakPool;
pub use metrics::operators;
pub use outbox::partition_of;
pub use task::answer;
pub use watch::{Watcher, pair as watch_pair};

/// The stack size of every thread that plans, decodes or runs a plan. An expression of thousands of
/// terms is an equally deep tree, and most code that traverses it recurses. Only touched pages use
/// memory.
pub const STACK_BYTES: usize = 512 << 20;
