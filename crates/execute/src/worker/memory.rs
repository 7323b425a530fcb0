//! A memory pool that records its peak.
//!
//! A worker has no disk. Only a task that is granted scratch can spill. Otherwise an operator that
//! requests more than the limit fails with an error that names operator, limit and peak, before the
//! kernel kills the sandbox without a message (Lambada 3.3).

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::error::Result;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{
    FairSpillPool, GreedyMemoryPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};

use super::scratch::Scratch;
use crate::error::fault::JOIN;

/// How DataFusion names the memory of some operators, and the operator.
const CONSUMERS: [(&str, &str); 8] = [
    (BUILD_SIDE, JOIN),
    ("ExternalSorter", "SortExec"),
    ("SMJStream", "SortMergeJoinExec"),
    ("NestedLoopJoin", "NestedLoopJoinExec"),
    ("Grouped", "AggregateExec"),
    ("SingleHash", "AggregateExec"),
    ("FinalHash", "AggregateExec"),
    ("OrderedFinal", "AggregateExec"),
];

/// The memory of a hash join.
const BUILD_SIDE: &str = "HashJoinInput";

/// A pool with a limit that records its peak.
#[derive(Debug)]
pub struct PeakPool {
    inner: Arc<dyn MemoryPool>,
    limit: usize,
    peak: AtomicUsize,
    /// Bytes of build sides of joins.
    joined: AtomicUsize,
    /// The operator that was refused memory last.
    refused: Mutex<Option<String>>,
}

impl PeakPool {
    /// A pool with a limit in bytes.
    pub fn new(limit: u64) -> Arc<Self> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Self::over(limit, Arc::new(GreedyMemoryPool::new(limit)))
    }

    /// A pool in which each operator that can spill gets the same share: the first of several sorts
    /// would otherwise leave nothing for the others.
    pub(crate) fn shared(limit: u64) -> Arc<Self> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Self::over(limit, Arc::new(FairSpillPool::new(limit)))
    }

    fn over(limit: usize, inner: Arc<dyn MemoryPool>) -> Arc<Self> {
        let peak = AtomicUsize::new(0);
        let joined = AtomicUsize::new(0);
        Arc::new(Self { inner, limit, peak, joined, refused: Mutex::default() })
    }

    /// The operator because of which the memory does not suffice: a join that holds half of it, or
    /// the one that was refused more.
    pub(crate) fn exhausted_by(&self) -> Option<String> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        match self.joined.load(Ordering::Relaxed) > self.limit / 2 {
            true => Some(JOIN.to_owned()),
            false => Some(refused),
        }
    }

    /// The peak of the reserved bytes.
    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed) as u64
    }

    /// The limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit as u64
    }

    /// A runtime that reserves from this pool, and spills only to scratch.
    pub fn runtime(self: &Arc<Self>, scratch: Option<&Scratch>) -> Result<Arc<RuntimeEnv>> {
        let disk = DiskManagerBuilder::default();
        let disk = match scratch {
            Some(scratch) => disk.with_temp_file_factory(Arc::new(scratch.clone())),
            None => disk.with_mode(DiskManagerMode::Disabled),
        };
        RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::clone(self) as Arc<dyn MemoryPool>)
            .with_disk_manager_builder(disk)
            .build_arc()
    }

    fn grown(&self, reservation: &MemoryReservation, additional: usize) {
        self.peak.fetch_max(self.inner.reserved(), Ordering::Relaxed);
        if is_build_side(reservation) {
            self.joined.fetch_add(additional, Ordering::Relaxed);
        }
    }

    fn refuse(&self, reservation: &MemoryReservation) {
        let name = reservation.consumer().name();
        let known = CONSUMERS.iter().find(|(prefix, _)| name.starts_with(prefix));
        let own = name.split('[').next().unwrap_or(name);
        let operator = known.map_or(own, |(_, operator)| operator).to_owned();
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(operator);
    }
}

fn is_build_side(reservation: &MemoryReservation) -> bool {
    reservation.consumer().name().starts_with(BUILD_SIDE)
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
        self.grown(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.inner.shrink(reservation, shrink);
        if is_build_side(reservation) {
            self.joined.fetch_sub(shrink, Ordering::Relaxed);
        }
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        match self.inner.try_grow(reservation, additional) {
            Ok(()) => self.grown(reservation, additional),
            Err(error) => {
                self.refuse(reservation);
                return Err(error);
            }
        }
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

    #[test]
    fn the_operator_that_fills_the_memory_is_named() {
        let pool = PeakPool::new(100);
        let shared = Arc::clone(&pool) as Arc<dyn MemoryPool>;
        assert_eq!(pool.exhausted_by(), None);
        let build = MemoryConsumer::new("HashJoinInput[0]").register(&shared);
        let sort = MemoryConsumer::new("ExternalSorter[0]").register(&shared);
        build.try_grow(40).unwrap();
        sort.try_grow(70).unwrap_err();
        assert_eq!(pool.exhausted_by().as_deref(), Some("SortExec"));
        build.try_grow(20).unwrap();
        sort.try_grow(70).unwrap_err();
        assert_eq!(pool.exhausted_by().as_deref(), Some("HashJoinExec"));
        drop(build);
        sort.try_grow(101).unwrap_err();
        assert_eq!(pool.exhausted_by().as_deref(), Some("SortExec"));
    }
}
