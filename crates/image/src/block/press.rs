//! Compression on several threads that keeps the order of its input.
//!
//! Invariant: at most `IN_FLIGHT` blocks for each thread are in memory, and what comes out does not
//! depend on the number of threads.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use super::{BlockDigest, BlockEntry, encode};
use crate::{Error, Result};

/// Two for each thread keep it busy while the writer writes.
const IN_FLIGHT: usize = 2;
const MOST_THREADS: usize = 8;

/// A block with what the table says of it.
pub(super) type Pressed = (Vec<u8>, BlockEntry);

struct Job {
    raw: Vec<u8>,
    done: mpsc::SyncSender<Result<Pressed>>,
}

/// The threads, and the blocks that are with them.
pub(super) struct Press {
    jobs: Option<mpsc::SyncSender<Job>>,
    waiting: VecDeque<mpsc::Receiver<Result<Pressed>>>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Press {
    /// As many threads as there are cores, eight at most; they start with the first block.
    pub fn new() -> Self {
        Self { jobs: None, waiting: VecDeque::new(), threads: Vec::new() }
    }

    /// Gives a block in; gives out the oldest one once enough are under way.
    pub fn push(&mut self, raw: Vec<u8>) -> Result<Option<Pressed>> {
        if self.jobs.is_none() {
            self.start();
        }
        let (done, receiver) = mpsc::sync_channel(1);
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(Job { raw, done }).is_ok());
        if !sent {
            return Err(stopped());
        }
        self.waiting.push_back(receiver);
        if self.waiting.len() > self.threads.len() * IN_FLIGHT { self.pop() } else { Ok(None) }
    }

    /// The oldest block that is under way.
    pub fn pop(&mut self) -> Result<Option<Pressed>> {
        let Some(oldest) = self.waiting.pop_front() else { return Ok(None) };
        oldest.recv().map_err(|_| stopped())?.map(Some)
    }

    fn start(&mut self) {
        let count = thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
        let (sender, receiver) = mpsc::sync_channel::<Job>(count * IN_FLIGHT);
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

impl Drop for Press {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // One that panicked has been told by its empty answer.
            let _ = thread.join();
        }
    }
}

fn work(jobs: &Mutex<mpsc::Receiver<Job>>) {
    loop {
        let next = jobs.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).recv();
        let Ok(Job { raw, done }) = next else { return };
        let pressed = encode(&raw).map(|stored| {
            let digest = BlockDigest::of(&stored);
            let entry = BlockEntry { stored: stored.len() as u32, digest };
            (stored, entry)
        });
        // Nobody waits any more if the writer was dropped.
        let _ = done.send(pressed);
    }
}

fn stopped() -> Error {
    Error::refused("a block", "the compressor stopped")
}
