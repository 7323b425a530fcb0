//! The result queue: stores the results of tasks until the driver's plan reads them.
//!
//! Results are stored in their encoded form ([`Spool`](super::Spool)) and decoded when read.
//!
//! Invariant: a partition's results are from one task, and each row is from one of its attempts.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::Segment;
use crate::Result;

/// The results of one stage's tasks, by partition of the stage.
///
/// A partition is readable once its task is complete. If the queue is streaming
/// ([`ResultQueue::is_streaming`]), it can be read while the task runs: if the task's worker is
/// lost, the next attempt gives the same rows in the same order, and the reader skips those that it
/// has. A queue that keeps its results can be read several times.
#[derive(Debug, Default)]
pub struct ResultQueue {
    streaming: AtomicBool,
    keeps: bool,
    parts: Mutex<BTreeMap<u32, PartitionResults>>,
    changed: Notify,
}

/// Results by partition of a stage.
pub type Results = BTreeMap<u32, Vec<Segment>>;

/// The unread results of one partition.
#[derive(Debug, Default)]
struct PartitionResults {
    segments: VecDeque<Arc<Segment>>,
    // The number of attempts that were lost while their results were readable.
    restarts: u32,
    // A reader has a part of them.
    read: bool,
    complete: bool,
}

impl ResultQueue {
    /// A queue that keeps its results until it is dropped, if the driver reads them several times.
    pub fn new(keeps: bool) -> Self {
        Self { keeps, ..Self::default() }
    }

    /// True once all of the first `partitions` partitions are complete.
    pub fn is_complete(&self, partitions: usize) -> bool {
        let parts = self.lock();
        (0..partitions as u32)
            .all(|partition| parts.get(&partition).is_some_and(|part| part.complete))
    }

    /// Makes results readable before their task is complete.
    pub fn enable_streaming(&self) {
        self.streaming.store(!self.keeps, Ordering::Relaxed);
    }

    /// True if results are readable before their task is complete.
    pub fn is_streaming(&self) -> bool {
        self.streaming.load(Ordering::Relaxed)
    }

    /// Adds a result of a running task.
    pub fn append(&self, partition: u32, segment: Segment) {
        self.lock().entry(partition).or_default().segments.push_back(Arc::new(segment));
        self.changed.notify_waiters();
    }

    /// Discards the unread results of a lost attempt.
    pub fn restart(&self, partitions: &[u32]) {
        let mut parts = self.lock();
        for partition in partitions {
            let part = parts.entry(*partition).or_default();
            part.segments.clear();
            part.restarts += 1;
        }
    }

    /// Discards all results of a lost attempt, unless some were read: the next attempt may give
    /// other rows, or the same in another order.
    pub fn restart_unread(&self, partitions: &[u32]) -> bool {
        let mut parts = self.lock();
        if partitions.iter().any(|partition| parts.get(partition).is_some_and(|part| part.read)) {
            return false;
        }
        for partition in partitions {
            let part = parts.entry(*partition).or_default();
            part.segments.clear();
            part.restarts += 1;
        }
        true
    }

    /// Commits the results of a complete attempt, which ran `partitions`: those that are not in the
    /// queue yet, by partition. Fails if a partition is already complete: two tasks would have run it.
    pub fn commit(&self, results: Results, partitions: &[u32]) -> Result<()> {
        let mut parts = self.lock();
        for partition in partitions {
            let part = parts.entry(*partition).or_default();
            if std::mem::replace(&mut part.complete, true) {
                let why = format!("partition {partition} has two results");
                return Err(datafusion::error::DataFusionError::Internal(why).into());
            }
        }
        for (partition, segments) in results {
            parts.entry(partition).or_default().segments.extend(segments.into_iter().map(Arc::new));
        }
        drop(parts);
        self.changed.notify_waiters();
        Ok(())
    }

    /// Returns the next result of a partition for a reader that has read `read` results, with the
    /// number of the partition's restarts; `None` after the last result.
    pub async fn next(&self, partition: u32, read: usize) -> Option<(u32, Arc<Segment>)> {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            // Registered before the check, so that a result appended in between wakes it too.
            changed.as_mut().enable();
            if let Some(found) = self.take(partition, read) {
                return found;
            }
            changed.await;
        }
    }

    /// Takes the next result of a partition: `None` if there is no result yet, `Some(None)` if
    /// there will be no more.
    fn take(&self, partition: u32, read: usize) -> Option<Option<(u32, Arc<Segment>)>> {
        let mut parts = self.lock();
        let part = parts.entry(partition).or_default();
        let next = match self.keeps {
            true => part.segments.get(read).cloned(),
            false => part.segments.pop_front(),
        };
        match next {
            Some(segment) => {
                part.read = true;
                Some(Some((part.restarts, segment)))
            }
            None if part.complete => Some(None),
            None => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, PartitionResults>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use snowmelt_wire::{Frame, Kind};

    use super::*;
    use crate::results::Spool;

    fn frame(byte: u8, length: usize) -> Frame {
        Frame::new(Kind::Batch, vec![byte; length])
    }

    fn spool(budget: u64) -> Arc<Spool> {
        Spool::new(budget, tempfile::tempfile().unwrap())
    }

    fn results(partitions: &[u32]) -> Results {
        partitions.iter().map(|partition| (*partition, Vec::new())).collect()
    }

    #[test]
    fn a_partition_is_committed_once() {
        let queue = ResultQueue::default();
        queue.commit(results(&[0, 2]), &[0, 2]).unwrap();
        queue.commit(results(&[1]), &[1]).unwrap();
        assert!(queue.commit(results(&[2]), &[2]).is_err());
    }

    #[tokio::test]
    async fn kept_results_are_read_again() {
        let queue = ResultQueue::new(true);
        let spool = spool(1000);
        let kept = Results::from([(3, vec![spool.keep(frame(1, 1)).unwrap()])]);
        queue.commit(kept, &[3]).unwrap();
        assert!(queue.is_complete(0) && !queue.is_complete(4));
        for _ in 0..2 {
            assert_eq!(queue.next(3, 0).await.unwrap().1.load().unwrap().payload[0], 1);
            assert!(queue.next(3, 1).await.is_none());
        }
    }

    #[tokio::test]
    async fn a_reader_waits_for_results_and_sees_restarts() {
        let queue = Arc::new(ResultQueue::default());
        let spool = spool(1000);
        let reading = Arc::clone(&queue);
        let reader = tokio::spawn(async move {
            let mut seen = Vec::new();
            while let Some((restarts, segment)) = reading.next(7, seen.len()).await {
                seen.push((restarts, segment.load().unwrap().payload[0]));
            }
            seen
        });
        queue.append(7, spool.keep(frame(1, 1)).unwrap());
        while queue.lock().get(&7).is_none_or(|part| !part.segments.is_empty()) {
            tokio::task::yield_now().await;
        }
        queue.restart(&[7]);
        queue.append(7, spool.keep(frame(2, 1)).unwrap());
        queue.commit(results(&[]), &[7]).unwrap();
        assert_eq!(reader.await.unwrap(), [(0, 1), (1, 2)]);
    }
}
