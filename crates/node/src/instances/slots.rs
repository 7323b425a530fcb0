//! The slots on instances that take several calls concurrently: which call has a slot on which
//! instance.
//!
//! Invariant: no instance has more calls than its function allows, and a new one is started only
//! when all that run or start are full. An instance that a call was given up on takes no new calls,
//! and ends when its other calls have ended.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snowmelt_api::Start;
use snowmelt_types::Digest;
use tokio::sync::OnceCell;

use super::instance::Instance;
use crate::Result;

/// The instances with calls under way that others may join, by the key of their unit and limits.
#[derive(Debug, Default)]
pub(crate) struct SharedInstances {
    // Held for a lookup only, never across a wait.
    shared: Mutex<HashMap<Digest, Vec<Arc<SharedInstance>>>>,
}

/// An instance, running or being started, and the number of calls that it has.
#[derive(Debug, Default)]
pub(crate) struct SharedInstance {
    pub instance: OnceCell<Arc<Instance>>,
    // Changed under the lock of `SharedInstances` only.
    taken: Mutex<u32>,
}

impl SharedInstances {
    /// Takes a slot on an instance that has a free one, or on a new instance (`true`), which the
    /// caller starts. `each` is the number of calls that an instance takes at once.
    pub fn take(&self, key: &Digest, each: u32) -> (Arc<SharedInstance>, bool) {
        if each <= 1 {
            return (Arc::new(SharedInstance::one()), true);
        }
        let mut shared = self.lock();
        let all = shared.entry(key.clone()).or_default();
        // An instance that a call was given up on takes no further calls, and is forgotten by its
        // last one.
        all.retain(|shared_instance| shared_instance.is_open());
        if let Some(shared_instance) =
            all.iter().find(|shared_instance| shared_instance.taken() < each)
        {
            // Under the lock in which the free slot was found.
            shared_instance.add(1);
            return (Arc::clone(shared_instance), false);
        }
        let shared_instance = Arc::new(SharedInstance::one());
        all.push(Arc::clone(&shared_instance));
        (shared_instance, true)
    }

    /// Returns the number of calls on this instance, the caller's own included.
    pub fn taken(&self, shared_instance: &SharedInstance) -> u32 {
        let _shared = self.lock();
        shared_instance.taken()
    }

    /// Returns a slot; `true` for the last one, after which the instance has no calls any more.
    pub fn leave(&self, key: &Digest, shared_instance: &Arc<SharedInstance>) -> bool {
        let mut shared = self.lock();
        shared_instance.add(-1);
        if shared_instance.taken() > 0 {
            return false;
        }
        if let Some(all) = shared.get_mut(key) {
            all.retain(|other| !Arc::ptr_eq(other, shared_instance));
            if all.is_empty() {
                shared.remove(key);
            }
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, Vec<Arc<SharedInstance>>>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedInstance {
    fn one() -> Self {
        Self { instance: OnceCell::new(), taken: Mutex::new(1) }
    }

    /// Waits for the instance, which `start` starts unless another caller's start is in progress.
    pub async fn fill(
        &self,
        start: impl Future<Output = Result<(Arc<Instance>, Start)>>,
    ) -> Result<Start> {
        let mut how = Start::Shared;
        let started = async {
            let (instance, start) = start.await?;
            how = start;
            Ok::<_, crate::Error>(instance)
        };
        self.instance.get_or_try_init(|| started).await?;
        Ok(how)
    }

    // An instance that is being started is open too.
    fn is_open(&self) -> bool {
        self.instance.get().is_none_or(|instance| instance.is_sound())
    }

    fn taken(&self) -> u32 {
        *self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, change: i32) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        *taken = taken.saturating_add_signed(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_an_instance_before_it_starts_another() {
        let slots = SharedInstances::default();
        let key = Digest::of("f");
        let (first, new) = slots.take(&key, 2);
        let (second, joined) = slots.take(&key, 2);
        assert!(new && !joined && Arc::ptr_eq(&first, &second));
        let (third, new) = slots.take(&key, 2);
        assert!(new && !Arc::ptr_eq(&first, &third));
        assert!(!slots.leave(&key, &first));
        assert!(Arc::ptr_eq(&first, &slots.take(&key, 2).0));
        assert!(!slots.leave(&key, &first) && slots.leave(&key, &first));
        assert!(slots.take(&Digest::of("g"), 2).1);
        assert_eq!(slots.taken(&third), 1);
    }

    #[test]
    fn an_instance_for_one_call_is_not_shared() {
        let slots = SharedInstances::default();
        let key = Digest::of("f");
        let (first, _) = slots.take(&key, 1);
        assert!(slots.take(&key, 1).1);
        assert!(slots.leave(&key, &first));
    }
}
