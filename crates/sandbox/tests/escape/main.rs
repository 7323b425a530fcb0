//! Attempts to escape, each made twice: against the product's spawner, where it must fail, and
//! against a spawner without the defence, where it must succeed: an attack that fails in both
//! proves nothing. SECURITY.md has the table of attacks and defences. Needs root; elsewhere the
//! tests print that they skip, and pass.
//!
//! `SNOWMELT_SPAWNER` is the command that starts the product's spawner; without it, the spawner of
//! this crate is used with all defences.

#[allow(dead_code, reason = "it serves the other tests as well")]
#[path = "../it/harness.rs"]
mod harness;

mod children;
mod descriptors;
mod exhaustion;
mod files;
mod identity;
mod input;
mod neighbours;
mod network;
mod outliving;
mod steps;
mod system_calls;
mod twin;
mod zygote_mounts;
mod zygotes;
