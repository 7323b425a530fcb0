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
pub use call::{
    CallDemand, Decision, GangRanks, Reclaimed, STARVED_AFTER, SchedulerPolicy, Ticket,
};
pub use gang::{GangDemand, GangRoom};
pub(crate) use gang::{HeldGang, RoomReservations};
pub(crate) use queue::Queue;
pub(crate) use task::HeldTask;
pub use task::{TaskDemand, Wish};
