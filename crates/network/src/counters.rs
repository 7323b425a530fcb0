//! The cost of a network, in requests to the kernel.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::netlink::Batch;

/// The kernel requests of one job. None of these grows with the number of functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counters {
    /// Netlink messages.
    pub messages: u64,
    /// System calls that sent them.
    pub batches: u64,
    /// Times that a thread entered another network namespace.
    pub crossings: u64,
    /// Devices moved from one network namespace to another.
    pub moves: u64,
}

impl Counters {
    /// Counts a batch that is about to be sent.
    pub(crate) fn add(&mut self, batch: &Batch) {
        self.messages += batch.len() as u64;
        self.batches += 1;
    }
}
