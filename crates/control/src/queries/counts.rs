//! Guards that count queries while they live.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::watch;

/// Counts a query with objects until they are removed.
pub(super) struct WithObjects<'q>(&'q watch::Sender<u32>);

impl<'q> WithObjects<'q> {
    pub(super) fn new(count: &'q watch::Sender<u32>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count)
    }
}

impl Drop for WithObjects<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// A guard that counts a query for as long as it lives, however it ends.
pub(super) struct QueryGuard(Arc<AtomicU32>);

impl QueryGuard {
    pub(super) fn new(running: &Arc<AtomicU32>) -> Self {
        running.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(running))
    }
}

impl Drop for QueryGuard {
    fn drop(&mut self) {
        if self.0.fetch_sub(1, Ordering::Relaxed) == 1 {
            // The last one has ended: an idle server should be small.
            tokio::task::spawn_blocking(snowmelt_kernel::memory::release_free);
        }
    }
}
