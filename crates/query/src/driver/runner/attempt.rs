//! A running attempt of a task: receives the batches and the progress of its worker.
//!
//! Invariant: no row of an attempt reaches the query before the driver commits the whole attempt,
//! unless its queue is streaming.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use snowmelt_execute::worker::partition_of;
use snowmelt_plan::results::{ResultQueue, Results, Spool};
use snowmelt_wire::{Frame, Kind, TaskProgress};

use crate::{Error, Result};

/// Callback for an attempt's progress.
pub(crate) type OnProgress = Arc<dyn Fn(&TaskProgress) + Send + Sync>;

/// The time at which a worker last sent something for an attempt. Shared with whoever waits for the
/// attempt.
#[derive(Debug)]
pub(crate) struct AttemptClock {
    asked: Instant,
    // Microseconds since then, from 1; 0 if it has not begun.
    began: AtomicU64,
    heard: AtomicU64,
}

impl AttemptClock {
    pub(crate) fn new() -> Self {
        Self { asked: Instant::now(), began: AtomicU64::new(0), heard: AtomicU64::new(0) }
    }

    /// How long the attempt's worker has run; `None` if the attempt still waits for its worker.
    pub(crate) fn runs_for(&self) -> Option<Duration> {
        self.since(&self.began)
    }

    /// How long nothing came from the attempt's worker; `None` if the attempt still waits for its
    /// worker.
    pub(crate) fn silent_for(&self) -> Option<Duration> {
        self.since(&self.heard)
    }

    fn since(&self, moment: &AtomicU64) -> Option<Duration> {
        let micros = moment.load(Ordering::Relaxed);
        (micros > 0).then(|| self.asked.elapsed().saturating_sub(Duration::from_micros(micros)))
    }

    fn hear(&self) {
        let now = u64::try_from(self.asked.elapsed().as_micros()).unwrap_or(u64::MAX).max(1);
        self.heard.store(now, Ordering::Relaxed);
        _ = self.began.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// The results of one attempt so far. Dropping it without a commit discards them.
pub struct Attempt {
    number: u32,
    spool: Arc<Spool>,
    on_progress: OnProgress,
    // None if the task writes to a file.
    queue: Option<Arc<ResultQueue>>,
    clock: Arc<AttemptClock>,
    current: Option<u32>,
    pub(crate) parts: Results,
    pub(crate) bytes: u64,
}

impl Attempt {
    pub(crate) fn new(
        number: u32,
        spool: Arc<Spool>,
        on_progress: OnProgress,
        queue: Option<Arc<ResultQueue>>,
    ) -> Self {
        let clock = Arc::new(AttemptClock::new());
        let parts = Results::new();
        Self { number, spool, on_progress, queue, clock, current: None, parts, bytes: 0 }
    }

    /// Replaces the attempt's clock by one that others can read.
    pub(crate) fn timed(self, clock: Arc<AttemptClock>) -> Self {
        Self { clock, ..self }
    }

    /// Notes that the attempt's worker has begun.
    pub(crate) fn began(&self) {
        self.clock.hear();
    }

    /// The number of earlier attempts of the task.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Reports the worker's progress.
    pub fn progress(&self, progress: &TaskProgress) {
        self.clock.hear();
        (self.on_progress)(progress);
    }

    /// Adds a `Schema` or `Batch` frame of the worker's results.
    pub fn result(&mut self, frame: Frame) -> Result<()> {
        self.clock.hear();
        if frame.kind == Kind::Schema {
            self.current = Some(partition_of(&frame)?);
        }
        let Some(partition) = self.current else {
            let found = frame.kind;
            let expected = "Schema";
            return Err(Error::Wire(snowmelt_wire::Error::Unexpected { found, expected }));
        };
        let Some(queue) = &self.queue else {
            let found = frame.kind;
            let expected = "Progress, Done or Failure";
            return Err(Error::Wire(snowmelt_wire::Error::Unexpected { found, expected }));
        };
        self.bytes += frame.payload.len() as u64;
        let segment = self.spool.keep(frame)?;
        let kept = self.parts.entry(partition).or_default();
        match queue.is_streaming() {
            true => queue.append(partition, segment),
            false => kept.push(segment),
        }
        Ok(())
    }
}

impl std::fmt::Debug for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attempt").field("number", &self.number).finish_non_exhaustive()
    }
}
