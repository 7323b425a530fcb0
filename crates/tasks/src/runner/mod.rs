//! The tasks of one query in sandboxes, and the room that they hold.
//!
//! | member | job |
//! |---|---|
//! | `times` | times that were tuned |
//! | `limits` | limits of the workers |
//! | `errors` | reasons why an attempt could not be started |
//! | `udf` | the UDFs of a query, and their instances |
//! | `query_room` | the room that a query and its tasks hold |
//! | `query_runner` | starts of tasks |
//! | `shares` | shares of tasks in the quota of the tenant |
//! | `task_room` | room for a query and each of its tasks |
//! | `gang_room` | room for all tasks of a gang at once |

mod errors;
mod gang_room;
mod limits;
mod query_room;
mod query_runner;
mod shares;
mod task_room;
mod times;
mod udf;

pub(crate) use errors::SPAWNER_REPLACED;
pub use limits::WorkerLimits;
pub(crate) use query_room::TaskRoom;
pub use query_runner::QueryRunner;
pub(crate) use query_runner::{RESERVABLE_PERCENT, StartedTask};
pub(crate) use shares::NoShare;
pub(crate) use task_room::Needs;
pub(crate) use times::{CLEANUP_TIMEOUT, END_REPORT_TIMEOUT, PARSE_TIMEOUT};
pub use udf::{UdfBinding, UdfImage, UdfSource};
