//! Idle items by key, to be taken again, within a budget of memory.
//!
//! The pool hands out the item that was returned last, because its pages are still warm in the
//! caches; the item that was returned longest ago goes first when the budget is full (SOCK 4.3, the
//! handler cache). A busy item is not in the pool, so it is never evicted.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use snowmelt_api::PoolFigures;
use snowmelt_types::{ByteSize, Digest};

/// A pool of idle items by key.
#[derive(Debug)]
pub(crate) struct ItemPool<T> {
    budget: u64,
    // Held for a push or a pop only, never across a wait.
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    /// The idle items by the order of their return.
    idle: BTreeMap<u64, IdleItem<T>>,
    /// The places in `idle` of each key's items, the last returned last.
    keys: HashMap<Digest, Vec<u64>>,
    /// The reason for which an idle item of a key was removed last.
    gone: HashMap<Digest, RemovalReason>,
    returned: u64,
    figures: PoolFigures,
}

/// The reason for which an idle item of a key was removed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemovalReason {
    /// Nobody took the item in time.
    Expired,
    /// The budget of memory was full, or the host had no room for something else.
    Evicted,
}

/// The most keys of which the reason for a removal is kept; with more of them, all are forgotten.
const MAX_GONE: usize = 4096;

#[derive(Debug)]
struct IdleItem<T> {
    key: Digest,
    item: T,
    since: Instant,
    until: Instant,
    bytes: u64,
}

impl<T> ItemPool<T> {
    /// Makes a pool whose items hold at most `budget` bytes of memory together.
    pub fn new(budget: ByteSize) -> Self {
        let figures = PoolFigures { budget: budget.bytes(), ..PoolFigures::default() };
        let idle = BTreeMap::new();
        let keys = HashMap::new();
        let gone = HashMap::new();
        let state = State { idle, keys, gone, returned: 0, figures };
        Self { budget: budget.bytes(), state: Mutex::new(state) }
    }

    /// Takes the item of a key that was returned last; `None` if none is idle. Counts a hit or a
    /// miss.
    pub fn take(&self, key: &Digest) -> Option<T> {
        let mut state = self.lock();
        let taken = state.keys.get(key).and_then(|places| places.last().copied());
        let taken = taken.and_then(|place| state.remove(place));
        match taken {
            Some(_) => state.figures.hits += 1,
            None => state.figures.misses += 1,
        }
        taken
    }

    /// Returns an unused item, which stays for at most `keep`. Gives back the items that had to
    /// make room for it, which may include the item itself: the caller destroys them outside the
    /// lock.
    pub fn put(&self, key: Digest, item: T, keep: Duration, memory: ByteSize) -> Vec<T> {
        let mut state = self.lock();
        state.returned += 1;
        // An item is idle again, so the reason of an earlier removal explains nothing any more.
        state.gone.remove(&key);
        let place = state.returned;
        state.keys.entry(key.clone()).or_default().push(place);
        state.figures.bytes += memory.bytes();
        let since = Instant::now();
        let until = since + keep;
        let bytes = memory.bytes();
        state.idle.insert(place, IdleItem { key, item, since, until, bytes });
        let mut evicted = Vec::new();
        while state.figures.bytes > self.budget {
            let Some((&oldest, _)) = state.idle.first_key_value() else { break };
            evicted.extend(state.remove_because(oldest, RemovalReason::Evicted));
        }
        state.figures.evicted += evicted.len() as u64;
        evicted
    }

    /// Removes the items that were idle for too long; the caller destroys them outside the lock.
    pub fn expired(&self, now: Instant) -> Vec<T> {
        let mut state = self.lock();
        let old = state.idle.iter().filter(|(_, idle)| idle.until <= now);
        let old: Vec<u64> = old.map(|(place, _)| *place).collect();
        state.figures.expired += old.len() as u64;
        old.into_iter()
            .filter_map(|place| state.remove_because(place, RemovalReason::Expired))
            .collect()
    }

    /// Returns why the idle items of a key were removed; `None` if none was removed since an item
    /// was last returned, or that is not known any more.
    pub fn removal_reason(&self, key: &Digest) -> Option<RemovalReason> {
        self.lock().gone.get(key).copied()
    }

    /// Removes the items of one key.
    pub fn remove(&self, key: &Digest) -> Vec<T> {
        let mut state = self.lock();
        let places = state.keys.get(key).cloned().unwrap_or_default();
        places.into_iter().filter_map(|place| state.remove(place)).collect()
    }

    /// Removes the items that `which` selects, to make room elsewhere; the caller destroys them
    /// outside the lock.
    pub fn evict(&self, which: impl Fn(&T) -> bool) -> Vec<T> {
        let mut state = self.lock();
        let places = state.idle.iter().filter(|(_, idle)| which(&idle.item));
        let places: Vec<u64> = places.map(|(place, _)| *place).collect();
        state.figures.evicted += places.len() as u64;
        places
            .into_iter()
            .filter_map(|place| state.remove_because(place, RemovalReason::Evicted))
            .collect()
    }

    /// Returns since when the item is idle that was returned longest ago; `None` for an empty pool.
    pub fn oldest(&self) -> Option<Instant> {
        self.lock().idle.first_key_value().map(|(_, idle)| idle.since)
    }

    /// Removes the item that was returned longest ago, to make room elsewhere; the caller destroys
    /// it outside the lock.
    pub fn evict_oldest(&self) -> Option<T> {
        let mut state = self.lock();
        let (&oldest, _) = state.idle.first_key_value()?;
        state.figures.evicted += 1;
        state.remove_because(oldest, RemovalReason::Evicted)
    }

    /// Removes the items that `which` selects, because they are of no use any more.
    pub fn discard(&self, which: impl Fn(&T) -> bool) -> Vec<T> {
        let mut state = self.lock();
        let places = state.idle.iter().filter(|(_, idle)| which(&idle.item));
        let places: Vec<u64> = places.map(|(place, _)| *place).collect();
        places.into_iter().filter_map(|place| state.remove(place)).collect()
    }

    /// Returns the number of idle items of each kind; `of` returns the kind of an item, or `None`
    /// to leave it out.
    pub fn tally<K: Ord>(&self, of: impl Fn(&T) -> Option<K>) -> BTreeMap<K, usize> {
        let mut tally = BTreeMap::new();
        for kind in self.lock().idle.values().filter_map(|idle| of(&idle.item)) {
            *tally.entry(kind).or_default() += 1;
        }
        tally
    }

    /// Removes all items.
    pub fn drain(&self) -> Vec<T> {
        let mut state = self.lock();
        state.keys.clear();
        state.gone.clear();
        state.figures.bytes = 0;
        std::mem::take(&mut state.idle).into_values().map(|idle| idle.item).collect()
    }

    /// Returns the number of idle items of one key.
    pub fn count(&self, key: &Digest) -> usize {
        self.lock().keys.get(key).map_or(0, Vec::len)
    }

    /// Returns how often items were found, missed and removed, and the items and memory that the
    /// pool holds.
    pub fn figures(&self) -> PoolFigures {
        let state = self.lock();
        PoolFigures { idle: state.idle.len() as u64, ..state.figures }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // No code that can panic runs under the lock, so the state that it guards is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    fn remove_because(&mut self, place: u64, why: RemovalReason) -> Option<T> {
        let key = self.idle.get(&place)?.key.clone();
        if self.gone.len() >= MAX_GONE {
            self.gone.clear();
        }
        self.gone.insert(key, why);
        self.remove(place)
    }

    fn remove(&mut self, place: u64) -> Option<T> {
        let idle = self.idle.remove(&place)?;
        self.figures.bytes = self.figures.bytes.saturating_sub(idle.bytes);
        if let Some(places) = self.keys.get_mut(&idle.key) {
            places.retain(|other| *other != place);
            if places.is_empty() {
                self.keys.remove(&idle.key);
            }
        }
        Some(idle.item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn mib(count: u64) -> ByteSize {
        ByteSize::mib(count)
    }

    #[test]
    fn hands_out_the_last_returned_and_expires_the_old() {
        let pool = ItemPool::new(mib(100));
        let key = Digest::of("key");
        pool.put(key.clone(), "old", Duration::ZERO, mib(1));
        pool.put(key.clone(), "new", LONG, mib(1));
        assert_eq!(pool.expired(Instant::now()), ["old"]);
        pool.put(key.clone(), "newest", LONG, mib(1));
        assert_eq!(pool.take(&key), Some("newest"));
        assert_eq!((pool.take(&key), pool.take(&key)), (Some("new"), None));
        let figures = pool.figures();
        assert_eq!((figures.hits, figures.misses, figures.expired), (2, 1, 1));
    }

    #[test]
    fn it_is_known_why_nothing_is_idle() {
        let pool = ItemPool::new(mib(10));
        let key = Digest::of("key");
        assert_eq!(pool.removal_reason(&key), None);
        pool.put(key.clone(), "old", Duration::ZERO, mib(1));
        pool.expired(Instant::now());
        assert_eq!(pool.removal_reason(&key), Some(RemovalReason::Expired));
        pool.put(key.clone(), "new", LONG, mib(1));
        assert_eq!(pool.removal_reason(&key), None);
        pool.put(Digest::of("other"), "large", LONG, mib(10));
        assert_eq!(pool.removal_reason(&key), Some(RemovalReason::Evicted));
    }

    #[test]
    fn keys_do_not_mix() {
        let pool = ItemPool::new(mib(100));
        pool.put(Digest::of("a"), 1, LONG, mib(1));
        assert_eq!(pool.take(&Digest::of("b")), None);
        assert_eq!((pool.figures().idle, pool.count(&Digest::of("a"))), (1, 1));
        assert_eq!(pool.drain(), [1]);
    }

    #[test]
    fn the_one_that_is_idle_longest_makes_room_elsewhere() {
        let pool = ItemPool::new(mib(100));
        let key = Digest::of("key");
        assert_eq!((pool.oldest(), pool.evict_oldest()), (None, None));
        let before = Instant::now();
        pool.put(key.clone(), "first", LONG, mib(1));
        pool.put(Digest::of("other"), "second", LONG, mib(1));
        assert!(pool.oldest() >= Some(before));
        assert_eq!(pool.evict_oldest(), Some("first"));
        assert_eq!(pool.removal_reason(&key), Some(RemovalReason::Evicted));
        let figures = pool.figures();
        assert_eq!((figures.idle, figures.bytes, figures.evicted), (1, mib(1).bytes(), 1));
    }

    #[test]
    fn a_full_budget_evicts_the_least_recently_used_of_all_keys() {
        let pool = ItemPool::new(mib(10));
        let one = Digest::of("one");
        let other = Digest::of("other");
        pool.put(one.clone(), "first", LONG, mib(4));
        pool.put(other.clone(), "second", LONG, mib(4));
        let first = pool.take(&one).unwrap();
        pool.put(one.clone(), first, LONG, mib(4));
        assert_eq!(pool.put(one.clone(), "third", LONG, mib(4)), ["second"]);
        assert_eq!(pool.figures().bytes, mib(8).bytes());
        assert_eq!(pool.put(other, "too large", LONG, mib(11)), ["first", "third", "too large"]);
        assert_eq!(pool.figures().bytes, 0);
    }
}
