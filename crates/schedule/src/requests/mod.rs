//! Requests for hosts, and the queue in which they wait.
//!
//! | member | job |
//! |---|---|
//! | `call` | calls of functions, decisions about them, and the policy |
//! | `gang` | ranks that start together or not at all |
//! | `task` | tasks of queries |
//! | `queue` | what waits, fair between tenants |

mod call;
mod gang;
mod queue;
mod task;

pub(crate) use call::State;
pub use call::{Call, Decision, Parts, Policy, Reclaimed, STARVED_AFTER, Ticket};
pub use gang::{Gang, GangRoom};
pub(crate) use gang::{HeldGang, Kept};
pub(crate) use queue::Queue;
pub(crate) use task::HeldTask;
pub use task::{Task, Wish};
