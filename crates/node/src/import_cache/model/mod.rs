//! The kept zygotes as plain data, without a process or a clock: what may be forked, what is in
//! demand, and what is worth its memory.
//!
//! Invariant: `properties` holds for every sequence of changes.

pub(crate) mod demand;
pub(crate) mod plan;
#[cfg(test)]
mod properties;
pub(crate) mod tree;
pub(crate) mod want;
