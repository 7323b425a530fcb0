//! Results of a deterministic function, kept by the values of its arguments, within a bound.
//!
//! There are two generations. New results go to the young one. When it has half of the bound, it
//! becomes the old one, and the results of the previous old one are dropped. A result of the old
//! generation that is used becomes young again. So results that are used stay, without an order of
//! their uses.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};

/// Bytes of a key in a map beside the key itself.
const KEY_BYTES: usize = 64;

/// A result: an array and a row in it.
pub(super) type ArrayRow = (u32, u32);

/// The place of a kept result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResultPlace {
    Young(ArrayRow),
    Old(ArrayRow),
}

/// Kept results of one function.
#[derive(Debug, Default)]
pub(super) struct ResultCache {
    young: Generation,
    old: Generation,
    room: Option<CacheMemory>,
}

/// The memory for kept results.
#[derive(Debug)]
pub(super) struct CacheMemory {
    reservation: MemoryReservation,
    most_bytes: usize,
}

impl CacheMemory {
    /// Reserves room of at most `most_bytes` bytes of a pool.
    pub(super) fn of(pool: &Arc<dyn MemoryPool>, function: &str, most_bytes: usize) -> Self {
        let consumer = MemoryConsumer::new(format!("KeptResults[{function}]"));
        Self { reservation: consumer.register(pool), most_bytes }
    }
}

#[derive(Debug, Default)]
struct Generation {
    places: HashMap<Box<[u8]>, ArrayRow>,
    arrays: Vec<ArrayRef>,
    bytes: usize,
}

impl ResultCache {
    /// Keeps results in a room; without one, none are kept.
    pub(super) fn new(room: Option<CacheMemory>) -> Self {
        Self { room, ..Self::default() }
    }

    /// The result for the bytes of some arguments.
    pub(super) fn find(&self, key: &[u8]) -> Option<ResultPlace> {
        let young = || self.young.places.get(key).copied().map(ResultPlace::Young);
        let old = || self.old.places.get(key).copied().map(ResultPlace::Old);
        young().or_else(old)
    }

    /// The arrays that places in the young generation refer to.
    pub(super) fn young(&self) -> &[ArrayRef] {
        &self.young.arrays
    }

    /// The arrays that places in the old generation refer to.
    pub(super) fn old(&self) -> &[ArrayRef] {
        &self.old.arrays
    }

    /// Keeps the results of some keys, a row for each. Places that were found are valid until then.
    pub(super) fn add<'a>(
        &mut self,
        keys: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
        results: &ArrayRef,
    ) {
        let Some(room) = &mut self.room else { return };
        let keys_bytes: usize = keys.clone().map(|key| key.len() + KEY_BYTES).sum();
        let bytes = keys_bytes + results.get_array_memory_size();
        if self.young.bytes + bytes > room.most_bytes / 2 {
            self.old = std::mem::take(&mut self.young);
            _ = room.reservation.try_resize(self.old.bytes);
        }
        if bytes > room.most_bytes / 2 {
            return;
        }
        if room.reservation.try_grow(bytes).is_err() {
            // Operators need the memory for what cannot be computed again.
            (self.young, self.old) = Default::default();
            self.room = None;
            return;
        }
        let array = self.young.arrays.len() as u32;
        self.young.arrays.push(Arc::clone(results));
        let places = keys.zip(0..).map(|(key, row)| (Box::from(key), (array, row)));
        self.young.places.extend(places);
        self.young.bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use datafusion::execution::memory_pool::GreedyMemoryPool;

    use super::*;

    fn kept(pool_bytes: usize, most_bytes: usize) -> (ResultCache, Arc<dyn MemoryPool>) {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(pool_bytes));
        (ResultCache::new(Some(CacheMemory::of(&pool, "f", most_bytes))), pool)
    }

    fn add(kept: &mut ResultCache, key: u64) {
        let results: ArrayRef = Arc::new(Int64Array::from(vec![key as i64]));
        kept.add([key.to_be_bytes()].iter().map(<[u8; 8]>::as_slice), &results);
    }

    fn find(kept: &ResultCache, key: u64) -> Option<i64> {
        let (arrays, (array, row)) = match kept.find(&key.to_be_bytes())? {
            ResultPlace::Young(place) => (kept.young(), place),
            ResultPlace::Old(place) => (kept.old(), place),
        };
        let values = arrays[array as usize].as_any().downcast_ref::<Int64Array>().unwrap();
        Some(values.value(row as usize))
    }

    #[test]
    fn results_are_found_by_their_key() {
        let (mut kept, _pool) = kept(1 << 20, 1 << 20);
        (0..10).for_each(|key| add(&mut kept, key));
        assert_eq!(find(&kept, 7), Some(7));
        assert_eq!(find(&kept, 10), None);
    }

    #[test]
    fn the_bound_is_kept_by_dropping_the_oldest() {
        let (mut kept, pool) = kept(1 << 20, 16 << 10);
        for key in 0..1000 {
            add(&mut kept, key);
            assert_eq!(find(&kept, key), Some(key as i64));
            assert!(pool.reserved() <= 16 << 10, "{}", pool.reserved());
        }
        assert_eq!(find(&kept, 0), None);
        drop(kept);
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn nothing_is_kept_when_operators_need_the_memory() {
        let (mut kept, pool) = kept(1 << 10, 1 << 20);
        (0..100).for_each(|key| add(&mut kept, key));
        assert_eq!((find(&kept, 0), find(&kept, 99)), (None, None));
        assert_eq!(pool.reserved(), 0);
        add(&mut kept, 5);
        assert_eq!(find(&kept, 5), None);
    }
}
