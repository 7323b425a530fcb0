//! The spool of a query: frames of results, in memory up to a budget and then in a file.
//!
//! Frames are stored in their encoded form. The file has no name, so that nothing is left behind
//! after a crash.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use snowmelt_wire::{Frame, Kind};

use crate::{Error, Result};

/// Memory budget for the results of one query.
pub const MEMORY_BYTES: u64 = 64 << 20;

/// Frames of results, in memory up to a budget and then in a file.
#[derive(Debug)]
pub struct Spool {
    budget: u64,
    file: Arc<File>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    in_memory: u64,
    end: u64,
}

/// A frame of results, in memory or on disk. Dropping it returns its memory to the budget.
#[derive(Debug)]
pub struct Segment(FrameStorage);

#[derive(Debug)]
enum FrameStorage {
    Memory { frame: Frame, _share: BudgetShare },
    Disk { kind: Kind, file: Arc<File>, offset: u64, length: usize },
}

/// A share of the budget.
#[derive(Debug)]
struct BudgetShare {
    spool: Arc<Spool>,
    bytes: u64,
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        let mut state = self.spool.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.in_memory -= self.bytes;
    }
}

impl Spool {
    /// Keeps up to `budget` bytes in memory; the rest goes to `file`.
    pub fn new(budget: u64, file: File) -> Arc<Self> {
        Arc::new(Self { budget, file: Arc::new(file), state: Mutex::default() })
    }

    /// Stores a frame until its segment is dropped.
    pub fn keep(self: &Arc<Self>, frame: Frame) -> Result<Segment> {
        let bytes = frame.payload.len() as u64;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.in_memory + bytes <= self.budget {
            state.in_memory += bytes;
            let share = BudgetShare { spool: Arc::clone(self), bytes };
            return Ok(Segment(FrameStorage::Memory { frame, _share: share }));
        }
        let offset = state.reserve(bytes);
        drop(state);
        self.file.write_all_at(&frame.payload, offset).map_err(Error::Spool)?;
        let file = Arc::clone(&self.file);
        let length = frame.payload.len();
        Ok(Segment(FrameStorage::Disk { kind: frame.kind, file, offset, length }))
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
    /// Loads the frame.
    pub fn load(&self) -> Result<Frame> {
        match &self.0 {
            FrameStorage::Memory { frame, .. } => Ok(frame.clone()),
            FrameStorage::Disk { kind, file, offset, length } => {
                let mut payload = vec![0; *length];
                file.read_exact_at(&mut payload, *offset).map_err(Error::Spool)?;
                Ok(Frame::new(*kind, payload))
            }
        }
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
    fn frames_beyond_the_budget_are_read_from_disk() {
        let spool = spool(100);
        let kept: Vec<Segment> = (0..5).map(|byte| spool.keep(frame(byte, 60)).unwrap()).collect();
        assert!(matches!(kept[0].0, FrameStorage::Memory { .. }));
        assert!(kept[1..].iter().all(|segment| matches!(segment.0, FrameStorage::Disk { .. })));
        for (byte, segment) in kept.iter().enumerate() {
            assert_eq!(segment.load().unwrap(), frame(byte as u8, 60));
        }
    }

    #[test]
    fn dropped_results_return_their_memory() {
        let spool = spool(100);
        drop(spool.keep(frame(1, 100)).unwrap());
        assert!(matches!(spool.keep(frame(2, 100)).unwrap().0, FrameStorage::Memory { .. }));
    }
}
