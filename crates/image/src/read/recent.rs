//! Decompressed blocks in memory: only so many that a block which is read piece by piece is
//! decompressed once. The kernel's page cache keeps the rest.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::block::BlockDigest;

/// The blocks used last, by the digest of what is stored.
pub(super) struct Recent {
    most_bytes: usize,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    /// The one used last is at the back. Few, so that looking through is as fast as hashing.
    blocks: VecDeque<(BlockDigest, Arc<Vec<u8>>)>,
    bytes: usize,
}

impl Recent {
    pub fn new(most_bytes: usize) -> Self {
        Self { most_bytes, held: Mutex::default() }
    }

    pub fn get(&self, digest: &BlockDigest, raw: usize) -> Option<Arc<Vec<u8>>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let at = held.blocks.iter().position(|(key, block)| key == digest && block.len() == raw)?;
        let found = held.blocks.remove(at)?;
        let block = Arc::clone(&found.1);
        held.blocks.push_back(found);
        Some(block)
    }

    pub fn put(&self, digest: BlockDigest, block: &Arc<Vec<u8>>) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.bytes += block.len();
        held.blocks.push_back((digest, Arc::clone(block)));
        while held.bytes > self.most_bytes {
            let Some((_, oldest)) = held.blocks.pop_front() else { break };
            held.bytes -= oldest.len();
        }
    }
}
