//! The result queue: what finished tasks posted, until the driver's plan reads it.
//!
//! Results stay as the bytes in which they came and are decoded when read. Beyond a budget they go
//! to a file that has no name, so that nothing is left behind whatever happens.
//!
//! Invariant: a partition's results come from one attempt of one task.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use snowmelt_wire::{Frame, Kind};

use super::Attempt;
use crate::{Error, Result};

/// Bytes of results of one query that are kept in memory.
pub(crate) const MEMORY_BYTES: u64 = 64 << 20;

/// Frames of results, in memory up to a budget and then in a file.
#[derive(Debug)]
pub(crate) struct Spool {
    budget: u64,
    file: Arc<File>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: u64,
    end: u64,
}

/// One frame of results. Memory that it holds is given back to the budget when it is dropped.
#[derive(Debug)]
pub(crate) enum Segment {
    Memory { frame: Frame, _held: Held },
    Disk { kind: Kind, file: Arc<File>, offset: u64, length: usize },
}

/// A share of the budget.
#[derive(Debug)]
pub(crate) struct Held {
    spool: Arc<Spool>,
    bytes: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.spool.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.held -= self.bytes;
    }
}

impl Spool {
    /// Keeps so many bytes in memory; the rest goes to `file`.
    pub(crate) fn new(budget: u64, file: File) -> Arc<Self> {
        Arc::new(Self { budget, file: Arc::new(file), state: Mutex::default() })
    }

    /// Keeps a frame until its segment is dropped.
    pub(crate) fn keep(self: &Arc<Self>, frame: Frame) -> Result<Segment> {
        let bytes = frame.payload.len() as u64;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.held + bytes <= self.budget {
            state.held += bytes;
            let held = Held { spool: Arc::clone(self), bytes };
            return Ok(Segment::Memory { frame, _held: held });
        }
        let offset = state.reserve(bytes);
        drop(state);
        self.file.write_all_at(&frame.payload, offset).map_err(Error::Spool)?;
        let file = Arc::clone(&self.file);
        Ok(Segment::Disk { kind: frame.kind, file, offset, length: frame.payload.len() })
    }
}

impl State {
    fn reserve(&mut self, bytes: u64) -> u64 {
        let offset = self.end;
        self.end += bytes;
        offset
    }
}

impl Segment {
    /// The frame again.
    pub(crate) fn load(&self) -> Result<Frame> {
        match self {
            Self::Memory { frame, .. } => Ok(frame.clone()),
            Self::Disk { kind, file, offset, length } => {
                let mut payload = vec![0; *length];
                file.read_exact_at(&mut payload, *offset).map_err(Error::Spool)?;
                Ok(Frame::new(*kind, payload))
            }
        }
    }
}

/// What the tasks of one fragment posted, by partition of the fragment.
#[derive(Debug, Default)]
pub(crate) struct ResultQueue {
    parts: Mutex<BTreeMap<u32, Vec<Segment>>>,
}

impl ResultQueue {
    /// Takes the results of a whole attempt. A partition that is there already is refused: two
    /// tasks would have run it.
    pub(crate) fn commit(&self, attempt: Attempt) -> Result<()> {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        for (partition, segments) in attempt.parts {
            if parts.insert(partition, segments).is_some() {
                let why = format!("partition {partition} has two results");
                return Err(datafusion::error::DataFusionError::Internal(why).into());
            }
        }
        Ok(())
    }

    /// The results of a partition, which are then no longer here.
    pub(crate) fn take(&self, partition: u32) -> Vec<Segment> {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.remove(&partition).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(byte: u8, length: usize) -> Frame {
        Frame::new(Kind::Batch, vec![byte; length])
    }

    fn spool(budget: u64) -> Arc<Spool> {
        Spool::new(budget, tempfile::tempfile().unwrap())
    }

    #[test]
    fn frames_beyond_the_budget_come_back_from_disk() {
        let spool = spool(100);
        let kept: Vec<Segment> = (0..5).map(|byte| spool.keep(frame(byte, 60)).unwrap()).collect();
        assert!(matches!(kept[0], Segment::Memory { .. }));
        assert!(kept[1..].iter().all(|segment| matches!(segment, Segment::Disk { .. })));
        for (byte, segment) in kept.iter().enumerate() {
            assert_eq!(segment.load().unwrap(), frame(byte as u8, 60));
        }
    }

    #[test]
    fn dropped_results_give_their_memory_back() {
        let spool = spool(100);
        drop(spool.keep(frame(1, 100)).unwrap());
        assert!(matches!(spool.keep(frame(2, 100)).unwrap(), Segment::Memory { .. }));
    }

    #[test]
    fn a_partition_is_committed_once() {
        let queue = ResultQueue::default();
        let attempt = |parts: &[u32]| {
            let mut attempt = Attempt::new(0, spool(100), Arc::new(|_| ()));
            attempt.parts = parts.iter().map(|part| (*part, Vec::new())).collect();
            attempt
        };
        queue.commit(attempt(&[0, 2])).unwrap();
        queue.commit(attempt(&[1])).unwrap();
        assert!(queue.commit(attempt(&[2])).is_err());
    }
}
