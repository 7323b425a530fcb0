//! Prewarmed instances: forked or executed, loaded, and paused until they are needed.
//!
//! Invariant: each function that asks for prewarmed instances has as many as it asks for, ready or
//! being started. A call that takes one does not wait for its replacement, which is started a
//! moment later.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use snowmelt_types::Digest;
use snowmelt_wire::Load;

use super::instance::Instance;
use crate::times::PREWARMED_AGAIN_AFTER;
use crate::{InstanceLimits, Unit};

/// The prewarmed instances that wait for a call, by function and limits.
#[derive(Debug, Default)]
pub(crate) struct Prewarmed {
    // Held for a lookup only, never across a wait.
    sets: Mutex<HashMap<Digest, Set>>,
}

#[derive(Debug)]
struct Set {
    /// The number of instances that should wait.
    wanted: usize,
    order: Arc<PrewarmOrder>,
    ready: Vec<Arc<Instance>>,
    /// The number of instances that are being started.
    starting: usize,
    not_before: Option<Instant>,
}

/// A function whose instances are prewarmed: how they are started and what they load.
#[derive(Debug)]
pub(crate) struct PrewarmOrder {
    pub unit: Unit,
    pub limits: Arc<InstanceLimits>,
    pub load: Load,
}

impl Prewarmed {
    /// Asks for `wanted` prewarmed instances of a function from now on; 0 ends those that wait.
    pub fn ask(&self, unit: &Unit, limits: &Arc<InstanceLimits>, load: &Load, wanted: usize) {
        let key = limits.key(&unit.digest);
        let order = Arc::new(PrewarmOrder {
            unit: unit.clone(),
            limits: Arc::clone(limits),
            load: load.clone(),
        });
        let replaced = if wanted == 0 {
            self.lock().remove(&key)
        } else {
            let set = Set { wanted, order, ready: Vec::new(), starting: 0, not_before: None };
            self.lock().insert(key, set)
        };
        drop(replaced);
    }

    /// Takes an instance that waits; `None` if there is none.
    pub fn take(&self, key: &Digest) -> Option<Arc<Instance>> {
        self.lock().get_mut(key)?.ready.pop()
    }

    /// Ends all instances that wait for a function, and asks for no more.
    pub fn forget(&self, key: &Digest) {
        let forgotten = self.lock().remove(key);
        drop(forgotten);
    }

    /// Ends all instances that wait, and asks for no more.
    pub fn clear(&self) {
        let all = std::mem::take(&mut *self.lock());
        drop(all);
    }

    /// Returns the number of instances that wait, and their memory in bytes.
    pub fn figures(&self) -> (u32, u64) {
        let waiting: Vec<Arc<Instance>> =
            self.lock().values().flat_map(|set| set.ready.iter().cloned()).collect();
        let waiting: Vec<_> = waiting.into_iter().filter(|instance| instance.is_sound()).collect();
        let bytes = waiting.iter().map(|instance| instance.memory().bytes()).sum();
        (u32::try_from(waiting.len()).unwrap_or(u32::MAX), bytes)
    }

    /// Returns the number of instances of one function that wait.
    pub fn count(&self, key: &Digest) -> usize {
        self.lock().get(key).map_or(0, |set| set.ready.len())
    }

    pub fn missing(&self, now: Instant) -> Vec<(Digest, Arc<PrewarmOrder>, usize)> {
        let mut missing = Vec::new();
        let mut ended = Vec::new();
        for (key, set) in self.lock().iter_mut() {
            ended.extend(set.ready.extract_if(.., |instance| !instance.is_sound()));
            let count = set.wanted.saturating_sub(set.ready.len() + set.starting);
            if count > 0 && set.not_before.is_none_or(|then| then <= now) {
                set.starting += count;
                missing.push((key.clone(), Arc::clone(&set.order), count));
            }
        }
        drop(ended);
        missing
    }

    /// Adds started instances; those of a function that does not ask for them any more are dropped.
    pub fn add(
        &self,
        key: &Digest,
        order: &Arc<PrewarmOrder>,
        started: Vec<Arc<Instance>>,
        expected: usize,
    ) {
        let mut sets = self.lock();
        let Some(set) = sets.get_mut(key).filter(|set| Arc::ptr_eq(&set.order, order)) else {
            return;
        };
        set.starting = set.starting.saturating_sub(expected);
        let failed = started.len() < expected;
        set.not_before = failed.then(|| Instant::now() + PREWARMED_AGAIN_AFTER);
        set.ready.extend(started);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, Set>> {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
