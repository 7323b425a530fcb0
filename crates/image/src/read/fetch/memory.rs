//! A small LRU cache in memory: just large enough that a block which is read piece by piece is
//! verified and decompressed once. The kernel's page cache keeps the data that was read.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// The most recently used bytes, by key.
pub(super) struct Recent<K> {
    most_bytes: usize,
    held: Mutex<RecentParts<K>>,
}

struct RecentParts<K> {
    /// The keys and bytes, the most recently used last. There are few, so a linear search is as
    /// fast as hashing.
    parts: VecDeque<(K, Bytes)>,
    bytes: usize,
}

impl<K: PartialEq> Recent<K> {
    pub fn new(most_bytes: usize) -> Self {
        Self { most_bytes, held: Mutex::new(RecentParts { parts: VecDeque::new(), bytes: 0 }) }
    }

    pub fn get(&self, key: &K) -> Option<Bytes> {
        let mut held = self.held();
        let at = held.parts.iter().position(|(known, _)| known == key)?;
        let found = held.parts.remove(at)?;
        let bytes = found.1.clone();
        held.parts.push_back(found);
        Some(bytes)
    }

    pub fn put(&self, key: K, bytes: Bytes) {
        let mut held = self.held();
        held.bytes += bytes.len();
        held.parts.push_back((key, bytes));
        while held.bytes > self.most_bytes {
            let Some((_, oldest)) = held.parts.pop_front() else { break };
            held.bytes -= oldest.len();
        }
    }

    fn held(&self) -> MutexGuard<'_, RecentParts<K>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
