//! The preforked child that a zygote has or is to have, as the zygote's state knows it.
//!
//! Invariant: a zygote has at most one preforked child, whose root and limits do not change.

use std::time::Instant;

use snowmelt_types::SandboxId;

use super::protocol::SandboxToken;
use crate::spec::{Limits, Root};

/// The preforked child that a zygote has, or is to have.
pub(in crate::spawner) struct Preforked {
    /// The root of the child.
    pub root: Root,
    /// The limits of the child.
    pub limits: Limits,
    pub state: State,
}

/// The progress of a preforked child.
pub(in crate::spawner) enum State {
    /// The child is to be made at this time.
    Due(Instant),
    /// The child is made, and perhaps still in flight.
    Made(SandboxToken),
}

/// The spec of a child without an entry: only its root and limits are known.
#[derive(Clone)]
pub(in crate::spawner) struct PreforkedSpec {
    pub id: SandboxId,
    pub root: Root,
    pub limits: Limits,
}

impl Preforked {
    /// The time at which the child is to be made. `None` if it is made already.
    pub fn due(&self) -> Option<Instant> {
        match self.state {
            State::Due(then) => Some(then),
            State::Made(_) => None,
        }
    }

    /// The child, once it is made.
    pub fn token(&self) -> Option<SandboxToken> {
        match self.state {
            State::Due(_) => None,
            State::Made(token) => Some(token),
        }
    }
}
