//! Instances of user code: idle instances are taken again, prewarmed ones are ready, and the rest
//! is started, forked from a zygote or executed.
//!
//! | part | file |
//! |---|---|
//! | one sandbox that runs user code | `instance` |
//! | slots on instances that take several calls | `slots` |
//! | prewarmed instances, and their replacement | `prewarming`, `replenishment` |
//! | leases, for calls and for the ranks of a burst | `leases`, `ranks`, `lease` |
//! | where an instance comes from | `acquisition`, `zygote_room` |
//! | answers, and the memory that they take | `answer`, `answer_memory` |

pub(crate) mod acquisition;
pub(crate) mod answer;
mod answer_memory;
pub(crate) mod instance;
pub(crate) mod lease;
mod leases;
pub(crate) mod prewarming;
pub(crate) mod ranks;
mod replenishment;
pub(crate) mod run;
mod slots;
pub(crate) mod zygote_room;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use snowmelt_sandbox::Spawner;
use snowmelt_types::Digest;

use crate::images::ImageKeeper;
use crate::import_cache::{IdleChildren, ImportCache};
use crate::resources::account::Account;
use crate::resources::count::Count;
use crate::resources::figures::Starts;
use crate::resources::pool::ItemPool;
use answer::Answers;
use instance::Instance;
use prewarming::Prewarmed;
use slots::SharedInstances;

/// The instances of a node: idle, prewarmed and in use.
#[derive(Debug)]
pub(crate) struct Instances {
    pub spawner: Spawner,
    pub account: Account,
    pub imports: ImportCache,
    pub images: Arc<ImageKeeper>,
    pub idle: Arc<ItemPool<Arc<Instance>>>,
    pub prewarmed: Prewarmed,
    slots: SharedInstances,
    pub starts: Starts,
    answers: Answers,
    pub busy: Count,
}

impl IdleChildren for ItemPool<Arc<Instance>> {
    fn by_slot(&self) -> BTreeMap<u64, usize> {
        self.tally(|instance| instance.zygote_slot())
    }

    fn end_below(&self, slot: u64) {
        drop(self.evict(|instance| instance.zygote_slot() == Some(slot)));
    }
}

impl Instances {
    pub fn new(
        spawner: Spawner,
        account: Account,
        imports: ImportCache,
        images: Arc<ImageKeeper>,
        idle: Arc<ItemPool<Arc<Instance>>>,
    ) -> Self {
        let prewarmed = Prewarmed::default();
        let slots = SharedInstances::default();
        let starts = Starts::default();
        let answers = Answers::default();
        let busy = Count::default();
        Self { spawner, account, imports, images, idle, prewarmed, slots, starts, answers, busy }
    }

    /// Returns the number of idle instances with the key `key`, prewarmed ones included.
    pub fn waiting_count(&self, key: &Digest) -> usize {
        self.idle.count(key) + self.prewarmed.count(key)
    }

    /// Ends the idle instances with the key `key`, prewarmed ones included, which are not replaced.
    pub fn forget(&self, key: &Digest) {
        self.prewarmed.forget(key);
        drop(self.idle.remove(key));
    }

    /// Ends all idle instances.
    pub fn clear(&self) {
        self.prewarmed.clear();
        drop(self.idle.drain());
    }

    /// Ends instances that were idle for too long, or have ended by themselves or with a lane of
    /// the spawner; starts prewarmed instances that are missing.
    pub fn maintain(self: &Arc<Self>, now: Instant) {
        drop(self.idle.expired(now));
        drop(self.idle.discard(|instance| !instance.is_sound()));
        self.replenish(now);
    }
}
