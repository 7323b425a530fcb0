//! A count of the leases that are out.

use std::sync::atomic::{AtomicU32, Ordering};

/// The number of leases that are out, counted by several threads.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU32);

impl Count {
    pub fn enter(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}
