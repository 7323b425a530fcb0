//! What the benches' drivers share: samples, how they are bounded and printed, and a spawner.

pub mod samples;
pub mod spawner;
