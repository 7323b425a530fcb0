//! Hosts and links in simulated time.
//!
//! | member | job |
//! |---|---|
//! | `links` | links that share their rate fairly between flows |
//! | `engine` | streams of blocks |
//! | `host` | the work of a host on the blocks that reach it |
//! | `network` | the streams of a simulation, and their sources |

mod engine;
mod host;
mod links;
mod network;

pub(crate) use engine::{Engine, ImageBlocks, Observe, REGISTRY};
pub(crate) use host::{HostSlot, Local};
#[cfg(test)]
pub(crate) use links::Links;
pub(crate) use network::{BlockSources, Network};
