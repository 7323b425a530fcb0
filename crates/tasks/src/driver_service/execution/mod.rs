//! The attempts of the tasks of one query, from the request to the end.
//!
//! | member | job |
//! |---|---|
//! | `loss` | the real reason for the failure of an attempt |
//! | `starts` | asks a host for room, and grants an attempt what it needs there |
//! | `placement_order` | the order in which tasks get a place when there was no room |
//! | `host_choice` | the best of the hosts that have room for an attempt |
//! | `slots` | the hosts of the tasks of a gang |
//! | `gangs` | gangs: tasks that run at the same time and stream rows to each other |
//! | `attempts` | all attempts of a query, and their outputs |

mod attempts;
mod gangs;
mod host_choice;
mod loss;
mod placement_order;
mod slots;
mod starts;

pub(super) use attempts::Attempts;
