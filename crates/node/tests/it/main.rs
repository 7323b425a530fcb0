//! Real nodes with real sandboxes: where instances come from, who shares one, and what waits.
//!
//! They need root and skip, saying so, without it.

mod caches;
mod programs;
mod rig;
mod room;
mod sharing;
mod spawner_loss;
