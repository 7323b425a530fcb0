//! Provisioning in simulated time: how long an image takes to thousands of hosts, by function trees
//! and by the ways that these are compared with (FaaSNet 3 and 4), in one burst or over the hours
//! of a trace.
//!
//! Rooms use those above them in this table only:
//!
//! | room | owns |
//! |---|---|
//! | `error`, `setting`, `strategy` | errors, settings, the ways that are compared |
//! | `model` | links, streams of blocks and the work of hosts |
//! | `burst` | one burst |
//! | `trace` | calls of functions over hours |
//! | `replay` | a trace in simulated time |
//!
//! Boundary: the trees are those of `snowmelt-tree`, and calls are placed by `snowmelt-schedule`.
//! Links, processors and failures are a model ([`Setting`] lists what it assumes). Nothing is read,
//! sent or measured.
//! Invariant: equal settings give equal outcomes. Invariants are checked while a simulation runs,
//! and a violation names the seed that replays it.

#![forbid(unsafe_code)]

mod burst;
mod error;
mod model;
mod replay;
mod setting;
mod strategy;
mod trace;

#[cfg(test)]
mod tests;

pub use burst::{SimulationOutcome, Spread, simulate};
pub use error::Error;
pub use replay::{
    Kill, Losses, ReplayPolicy, ReplayProgress, Replayed, TRACE_ASSUMPTIONS, Waits, Window, replay,
};
pub use setting::{ASSUMPTIONS, Setting};
pub use snowmelt_tree::Repair;
pub use strategy::Strategy;
pub use trace::{Arrival, Profile, Trace, TraceFunction, TraceOrigin};
