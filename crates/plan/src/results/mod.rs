//! The results of a query's tasks, on their way into the driver's plan.
//!
//! | file | owns |
//! |---|---|
//! | `queue` | the results of a stage by partition, until they are read |
//! | `spool` | frames in memory up to a budget, and then in a file |
//! | `exec` | the leaf of the driver's plan that reads a queue |

mod exec;
mod queue;
mod spool;

pub(crate) use exec::ResultExec;
pub use queue::{ResultQueue, Results};
pub use spool::{MEMORY_BYTES, Segment, Spool};
