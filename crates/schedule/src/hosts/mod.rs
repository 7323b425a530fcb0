//! The hosts, as far as they are known, in the orders in which they are asked.
//!
//! | member | job |
//! |---|---|
//! | `host` | the knowledge of one host |
//! | `directory` | the hosts by name, with the changes of each |
//! | `load` | the load of a host's cores |
//! | `order` | hosts in order of load and place |
//! | `rooms` | hosts in the order in which they are asked for a new instance |
//! | `instances` | the instances of a function on one host |
//! | `instance_orders` | the instances of a function on all hosts |
//! | `choice` | the choice of the host for a call |
//! | `uses` | the functions of each host, and their use |
//!
//! Boundary: nothing here changes a request.

mod choice;
mod directory;
mod host;
mod instance_orders;
mod instances;
mod load;
mod order;
mod rooms;
mod uses;

pub(crate) use choice::{HostSearch, SearchReach, could_start, may_ever_run};
pub(crate) use directory::{Follower, HostDirectory, HostEntry};
pub use host::HostRoom;
pub(crate) use host::HostUsage;
pub(crate) use instance_orders::OnHosts;
pub(crate) use instances::Instances;
pub(crate) use rooms::HostOrders;
pub(crate) use uses::{Use, Uses};
