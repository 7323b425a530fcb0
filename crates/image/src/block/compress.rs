//! Compression by several threads that keeps the order of its input.
//!
//! Invariant: at most `IN_FLIGHT` blocks per thread are in memory, and the output does not depend
//! on the number of threads.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use super::{BlockDigest, BlockEntry, encode};
use crate::{Error, Result};

/// The number of blocks in flight per thread. Two keep a thread busy while the writer writes.
const IN_FLIGHT: usize = 2;
const MAX_THREADS: usize = 8;

/// A stored block and its entry in the table.
pub(super) type CompressedBlock = (Vec<u8>, BlockEntry);

struct CompressionJob {
    raw: Vec<u8>,
    done: mpsc::SyncSender<Result<CompressedBlock>>,
}

/// The threads, and the blocks that they compress.
pub(super) struct CompressorPool {
    jobs: Option<mpsc::SyncSender<CompressionJob>>,
    waiting: VecDeque<mpsc::Receiver<Result<CompressedBlock>>>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl CompressorPool {
    /// Uses as many threads as there are cores, at most eight; they start with the first block.
    pub fn new() -> Self {
        Self { jobs: None, waiting: VecDeque::new(), threads: Vec::new() }
    }

    /// Queues a block; returns the oldest one once enough blocks are queued.
    pub fn push(&mut self, raw: Vec<u8>) -> Result<Option<CompressedBlock>> {
        if self.jobs.is_none() {
            self.start();
        }
        let (done, receiver) = mpsc::sync_channel(1);
        let sent =
            self.jobs.as_ref().is_some_and(|jobs| jobs.send(CompressionJob { raw, done }).is_ok());
        if !sent {
            return Err(stopped());
        }
        self.waiting.push_back(receiver);
        if self.waiting.len() > self.threads.len() * IN_FLIGHT { self.pop() } else { Ok(None) }
    }

    /// Returns the oldest queued block.
    pub fn pop(&mut self) -> Result<Option<CompressedBlock>> {
        let Some(oldest) = self.waiting.pop_front() else { return Ok(None) };
        oldest.recv().map_err(|_| stopped())?.map(Some)
    }

    fn start(&mut self) {
        let count = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        let (sender, receiver) = mpsc::sync_channel::<CompressionJob>(count * IN_FLIGHT);
        let receiver = Arc::new(Mutex::new(receiver));
        self.jobs = Some(sender);
        self.threads = (0..count)
            .map(|_| {
                let jobs = Arc::clone(&receiver);
                thread::spawn(move || work(&jobs))
            })
            .collect();
    }
}

impl Drop for CompressorPool {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // If the thread panicked, its closed channel has reported it.
            let _ = thread.join();
        }
    }
}

fn work(jobs: &Mutex<mpsc::Receiver<CompressionJob>>) {
    loop {
        let next = jobs.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).recv();
        let Ok(CompressionJob { raw, done }) = next else { return };
        let compressed = encode(&raw).map(|stored| {
            let digest = BlockDigest::of(&stored);
            let entry = BlockEntry { stored: stored.len() as u32, digest };
            (stored, entry)
        });
        // The receiver is closed if the writer was dropped.
        let _ = done.send(compressed);
    }
}

fn stopped() -> Error {
    Error::refused("a block", "the compressor stopped")
}
