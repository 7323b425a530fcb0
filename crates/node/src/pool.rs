//! Idle things by key, to be taken again.
//!
//! The pool hands out what was returned last, because its pages are still warm in the caches; the
//! oldest is evicted first.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use snowmelt_types::Digest;

/// Idle things by key.
#[derive(Debug)]
pub(crate) struct Pool<T> {
    // Held for a push or a pop only, never across a wait.
    idle: Mutex<HashMap<Digest, Vec<Idle<T>>>>,
}

#[derive(Debug)]
struct Idle<T> {
    item: T,
    until: Instant,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self { idle: Mutex::default() }
    }
}

impl<T> Pool<T> {
    /// Takes the thing that was returned last.
    pub fn take(&self, key: &Digest) -> Option<T> {
        let mut idle = self.lock();
        let items = idle.get_mut(key)?;
        let taken = items.pop();
        if items.is_empty() {
            idle.remove(key);
        }
        taken.map(|taken| taken.item)
    }

    /// Returns a thing that nobody uses; it stays for at most `keep`.
    pub fn put(&self, key: Digest, item: T, keep: Duration) {
        let until = Instant::now() + keep;
        self.lock().entry(key).or_default().push(Idle { item, until });
    }

    /// Removes what has been idle for too long; the caller destroys it outside the lock.
    pub fn expired(&self, now: Instant) -> Vec<T> {
        let mut idle = self.lock();
        let mut expired = Vec::new();
        for items in idle.values_mut() {
            let old = items.extract_if(.., |idle| idle.until <= now);
            expired.extend(old.map(|idle| idle.item));
        }
        idle.retain(|_, items| !items.is_empty());
        expired
    }

    /// Removes what belongs to one key.
    pub fn remove(&self, key: &Digest) -> Vec<T> {
        let items = self.lock().remove(key).unwrap_or_default();
        items.into_iter().map(|idle| idle.item).collect()
    }

    /// Removes everything.
    pub fn drain(&self) -> Vec<T> {
        let all = std::mem::take(&mut *self.lock());
        all.into_values().flatten().map(|idle| idle.item).collect()
    }

    /// How many are idle.
    pub fn len(&self) -> usize {
        self.lock().values().map(Vec::len).sum()
    }

    /// How many are idle under one key.
    pub fn count(&self, key: &Digest) -> usize {
        self.lock().get(key).map_or(0, Vec::len)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, Vec<Idle<T>>>> {
        // No code that can panic runs under the lock, so what it guards is whole.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hands_out_the_last_returned_and_evicts_the_oldest() {
        let (pool, key) = (Pool::default(), Digest::of("key"));
        pool.put(key.clone(), "old", Duration::ZERO);
        pool.put(key.clone(), "new", Duration::from_secs(600));
        assert_eq!(pool.expired(Instant::now()), ["old"]);
        pool.put(key.clone(), "newest", Duration::from_secs(600));
        assert_eq!(pool.take(&key), Some("newest"));
        assert_eq!((pool.take(&key), pool.take(&key)), (Some("new"), None));
    }

    #[test]
    fn keys_do_not_mix() {
        let pool = Pool::default();
        pool.put(Digest::of("a"), 1, Duration::from_secs(600));
        assert_eq!(pool.take(&Digest::of("b")), None);
        assert_eq!((pool.len(), pool.count(&Digest::of("a"))), (1, 1));
        assert_eq!(pool.drain(), [1]);
    }
}
