//! An index of sizes, ordered by last use (LRU).

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// The sizes in bytes of keys, and the order of their last uses.
pub(super) struct KeyUsage<K> {
    /// The size of each key, and the time of its last use.
    held: HashMap<K, (u64, u64)>,
    by_use: BTreeMap<u64, K>,
    bytes: u64,
    clock: u64,
}

impl<K> Default for KeyUsage<K> {
    fn default() -> Self {
        Self { held: HashMap::new(), by_use: BTreeMap::new(), bytes: 0, clock: 0 }
    }
}

impl<K: Copy + Eq + Hash> KeyUsage<K> {
    /// Returns the total size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a key, used now.
    pub fn add(&mut self, key: K, bytes: u64) {
        self.remove(&key);
        self.clock += 1;
        self.held.insert(key, (bytes, self.clock));
        self.by_use.insert(self.clock, key);
        self.bytes += bytes;
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &K) {
        if let Some((bytes, used)) = self.held.remove(key) {
            self.by_use.remove(&used);
            self.bytes -= bytes;
        }
    }

    /// Returns whether a key exists.
    pub fn has(&self, key: &K) -> bool {
        self.held.contains_key(key)
    }

    /// Marks a key as used now; false if it does not exist.
    pub fn touch(&mut self, key: &K) -> bool {
        let Some(&(bytes, _)) = self.held.get(key) else { return false };
        self.add(*key, bytes);
        true
    }

    /// Returns the least recently used key, if the total size exceeds `most`.
    pub fn oldest_above(&self, most: u64) -> Option<K> {
        if self.bytes <= most {
            return None;
        }
        self.by_use.values().next().copied()
    }
}
