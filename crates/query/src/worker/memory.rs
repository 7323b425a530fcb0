//! A memory pool that records its peak.
//!
//! Nothing spills, because a worker has no disk. An operator that requests more than the limit
//! fails with an error that names limit and peak, before the kernel kills the sandbox without a
//! message (Lambada 3.3).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::error::Result;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{
    GreedyMemoryPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};

/// A greedy pool with a limit that records its peak.
#[derive(Debug)]
pub(crate) struct PeakPool {
    inner: GreedyMemoryPool,
    limit: usize,
    peak: AtomicUsize,
}

impl PeakPool {
    /// A pool with a limit in bytes.
    pub(crate) fn new(limit: u64) -> Arc<Self> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Arc::new(Self { inner: GreedyMemoryPool::new(limit), limit, peak: AtomicUsize::new(0) })
    }

    /// The peak of the reserved bytes.
    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed) as u64
    }

    /// The limit in bytes.
    pub(crate) fn limit(&self) -> u64 {
        self.limit as u64
    }

    /// A runtime that reserves from this pool and never spills.
    pub(crate) fn runtime(self: &Arc<Self>) -> Result<Arc<RuntimeEnv>> {
        let no_disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
        RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::clone(self) as Arc<dyn MemoryPool>)
            .with_disk_manager_builder(no_disk)
            .build_arc()
    }

    fn note(&self) {
        self.peak.fetch_max(self.inner.reserved(), Ordering::Relaxed);
    }
}

impl fmt::Display for PeakPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.inner)
    }
}

impl MemoryPool for PeakPool {
    fn name(&self) -> &str {
        "peak"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.inner.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.inner.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.inner.grow(reservation, additional);
        self.note();
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.inner.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.inner.try_grow(reservation, additional)?;
        self.note();
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.inner.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_records_its_peak_and_enforces_its_limit() {
        let pool = PeakPool::new(100);
        let shared = Arc::clone(&pool) as Arc<dyn MemoryPool>;
        let reservation = MemoryConsumer::new("test").register(&shared);
        reservation.try_grow(80).unwrap();
        reservation.shrink(50);
        assert!(reservation.try_grow(90).is_err());
        assert_eq!((pool.peak(), pool.limit()), (80, 100));
    }
}
