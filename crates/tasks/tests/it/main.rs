//! Real nodes with real sandboxes: what tasks and bursts ask for at once, and what becomes of
//! queries whose spawner dies.
//!
//! They need root and skip, saying so, without it.

mod bursts;
#[expect(dead_code, reason = "tests of the node need more of it")]
#[path = "../../../node/tests/it/rig.rs"]
mod rig;
mod spawner_loss;
