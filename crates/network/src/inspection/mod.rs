//! The actual state of a job's network, as the kernel and the other hosts report it.
//!
//! | part | file |
//! |---|---|
//! | connections, routes and neighbours of a namespace | `contents` |
//! | requests to the kernel | `counters` |
//! | sockets that receive packets for an address and a port | `listeners` |
//! | the route of a packet to an address | `trace` |
//! | whether the other hosts of a job answer | `reachability` |

pub(crate) mod contents;
mod counters;
pub(crate) mod listeners;
pub(crate) mod reachability;
pub(crate) mod trace;

pub use contents::{NamespaceContents, Unsent};
pub use counters::Counters;
pub use listeners::{Listener, Transport};
pub use trace::TracedRoute;
