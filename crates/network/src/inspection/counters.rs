//! The cost of a network, in requests to the kernel.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::netlink::Batch;

/// The kernel requests of one job. No count grows with the number of functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counters {
    /// The number of netlink messages.
    pub messages: u64,
    /// The number of system calls that sent these messages.
    pub batches: u64,
    /// The number of times that a thread entered another network namespace.
    pub crossings: u64,
    /// The number of devices moved from one network namespace to another.
    pub moves: u64,
}

impl Counters {
    /// Counts a batch that is about to be sent.
    pub(crate) fn add(&mut self, batch: &Batch) {
        self.messages += batch.len() as u64;
        self.batches += 1;
    }
}
