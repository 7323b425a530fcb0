//! Instances that take several calls at once: who sits where.
//!
//! Invariant: no instance has more calls than its function allows, and a new one is started only
//! when all that run or start are full. An instance that a call was given up on takes no new
//! calls, and ends when the others have ended theirs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snowmelt_api::Start;
use snowmelt_types::Digest;
use tokio::sync::OnceCell;

use crate::Result;
use crate::instance::Instance;

/// Instances with calls under way, by what they run.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    // Held for a look only, never across a wait.
    shared: Mutex<HashMap<Digest, Vec<Arc<Occupied>>>>,
}

/// One instance, running or about to, and how many calls it has.
#[derive(Debug, Default)]
pub(crate) struct Occupied {
    pub instance: OnceCell<Arc<Instance>>,
    // Changed under the lock of `Seats` only.
    taken: Mutex<u32>,
}

impl Seats {
    /// A seat on an instance that has one free, or on a new one (true), which whoever sits there
    /// first starts.
    pub fn sit(&self, key: &Digest, each: u32) -> (Arc<Occupied>, bool) {
        if each <= 1 {
            return (Arc::new(Occupied::one()), true);
        }
        let mut shared = self.lock();
        let all = shared.entry(key.clone()).or_default();
        all.retain(|occupied| occupied.is_open());
        if let Some(occupied) = all.iter().find(|occupied| occupied.taken() < each) {
            occupied.add(1);
            return (Arc::clone(occupied), false);
        }
        let occupied = Arc::new(Occupied::one());
        all.push(Arc::clone(&occupied));
        (occupied, true)
    }

    /// Calls on this instance, one's own included.
    pub fn taken(&self, occupied: &Occupied) -> u32 {
        let _shared = self.lock();
        occupied.taken()
    }

    /// Gives a seat back; true for the last one, and then nobody can sit there any more.
    pub fn leave(&self, key: &Digest, occupied: &Arc<Occupied>) -> bool {
        let mut shared = self.lock();
        occupied.add(-1);
        if occupied.taken() > 0 {
            return false;
        }
        if let Some(all) = shared.get_mut(key) {
            all.retain(|other| !Arc::ptr_eq(other, occupied));
            if all.is_empty() {
                shared.remove(key);
            }
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, Vec<Arc<Occupied>>>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Occupied {
    fn one() -> Self {
        Self { instance: OnceCell::new(), taken: Mutex::new(1) }
    }

    /// Waits for the instance, which `start` gives unless somebody else's start is under way.
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

    // One that is being started is open too.
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
        let (seats, key) = (Seats::default(), Digest::of("f"));
        let (first, new) = seats.sit(&key, 2);
        let (second, joined) = seats.sit(&key, 2);
        assert!(new && !joined && Arc::ptr_eq(&first, &second));
        let (third, new) = seats.sit(&key, 2);
        assert!(new && !Arc::ptr_eq(&first, &third));
        assert!(!seats.leave(&key, &first));
        assert!(Arc::ptr_eq(&first, &seats.sit(&key, 2).0));
        assert!(!seats.leave(&key, &first) && seats.leave(&key, &first));
        assert!(seats.sit(&Digest::of("g"), 2).1);
        assert_eq!(seats.taken(&third), 1);
    }

    #[test]
    fn an_instance_for_one_call_is_not_shared() {
        let (seats, key) = (Seats::default(), Digest::of("f"));
        let (first, _) = seats.sit(&key, 1);
        assert!(seats.sit(&key, 1).1);
        assert!(seats.leave(&key, &first));
    }
}
