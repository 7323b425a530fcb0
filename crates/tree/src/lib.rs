//! Function trees: which host reads a function's image from which other host (FaaSNet 3.2).
//!
//! Boundary: the shape of one tree, or of striped ones, and nothing else; who the hosts are, and
//! what they send each other, is decided above. There is no I/O and no clock.
//! Invariant: below each host of a tree, the subtrees of all its places (an empty place has height
//! 0) differ in height by at most 1, after any sequence of insertions and removals.

#![forbid(unsafe_code)]

mod change;
mod check;
mod refill;
mod restore;
mod rotate;
mod slots;
mod striped;
mod tree;

#[cfg(test)]
mod tests;

pub use change::{Move, Placed};
pub use check::Broken;
pub use restore::Unrestorable;
pub use striped::{StripeMove, Striped};
pub use tree::{BINARY, Repair, Tree};
