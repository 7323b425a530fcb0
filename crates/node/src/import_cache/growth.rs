//! The growth of the tree of zygotes: a zygote is grown, others make room for it, and the time and
//! memory that its imports really needed are remembered.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use snowmelt_ledger::{Amount, Use};
use snowmelt_types::ByteSize;
use snowmelt_udf::SHARED_SETUP;

use super::model::plan::Growth;
use super::model::tree::{Grown, NodeId};
use super::model::want::{Set, Want, ZygoteScope};
use super::state::{Inner, State};
use super::zygote_process::ZygoteSlot;
use super::zygote_start::{Fresh, ZygoteSource};
use crate::resources::account::{self, ZygoteRoom};
use crate::{Error, Result};

impl Inner {
    /// Grows a zygote, or waits while another caller grows it. If the first zygote of the scope has
    /// to be started for that, it takes `first`. A zygote that cannot be grown is not a failure of
    /// the caller: a child imports the rest itself.
    pub(super) async fn grow(&self, growth: Growth, first: &ZygoteRoom) {
        let key = (growth.scope.clone(), growth.set.clone());
        // One growth for each set: a second caller waits for the first, and has the zygote then.
        let cell = Arc::clone(self.lock().growing.entry(key.clone()).or_default());
        cell.get_or_init(|| self.grow_now(growth, first)).await;
        self.lock().growing.remove(&key);
    }

    async fn grow_now(&self, growth: Growth, first: &ZygoteRoom) {
        let Growth { scope, set, parent, bytes, .. } = growth;
        let Some((source, slot)) = self.make_room(&scope, &set, parent, bytes) else { return };
        let ask = Amount { memory: ByteSize(bytes), ..account::zygote() };
        let ask = self.account.ask(&scope.tenant, Use::Zygote, ask);
        let growing = async {
            // Without waiting: a zygote saves time, and must not wait for room like an instance.
            let room = self.account.at_once(&ask)?;
            let parent = self.member(&scope.tenant, &slot, &source, first).await?;
            let Fresh { member, us } = source.grow(&self.spawner, parent, &set).await?;
            Ok(Fresh { member: member.owning(room), us })
        };
        let grown = growing.await;
        let usable = grown.and_then(single_threaded).and_then(|fresh| set_up(&set, fresh));
        match usable {
            Ok(fresh) => self.keep(&scope, &set, parent, fresh),
            Err(error) => {
                tracing::debug!(%error, modules = ?set.modules, "no zygote can be grown");
                // So that the next call does not try the same again at once.
                self.lock().experience.failed(&scope, &set, Instant::now());
            }
        }
    }

    /// Evicts zygotes that have to make room; returns how to start the new zygote, and the slot of
    /// the zygote that it is grown from.
    fn make_room(
        &self,
        scope: &ZygoteScope,
        set: &Set,
        parent: NodeId,
        bytes: u64,
    ) -> Option<(ZygoteSource, Arc<ZygoteSlot>)> {
        let mut state = self.lock();
        let has = |want: &Want| want.scope == *scope && set.is_subset(&want.set);
        let source = state.sources.iter().find(|(want, _)| has(want));
        let source = source.map(|(_, source)| source.clone())?;
        let slot = Arc::clone(state.slots.get(&parent)?);
        // In use from now on, so that the maintenance does not release the parent meanwhile.
        slot.touch();
        let left = self.budget.bytes().saturating_sub(bytes);
        let gone = self.shrink(&mut state, left, Some(parent));
        drop(state);
        // Outside of the lock: dropping the last handle of a zygote sends a request to the spawner.
        drop(gone);
        Some((source, slot))
    }

    fn keep(&self, scope: &ZygoteScope, set: &Set, parent: NodeId, fresh: Fresh) {
        let mut state = self.lock();
        let member = Arc::new(fresh.member);
        // A released parent cannot be forked, and nothing can be kept without it.
        let Some(parent_us) = state.tree.get(parent).map(|parent| parent.grown.us) else { return };
        let ready = member.zygote().ready();
        // A set-up is that of one function, so its needs are remembered with its whole set.
        for one in ready.imported.iter().filter(|one| one.module != SHARED_SETUP) {
            state.experience.measured(set, &one.module, one.us, one.bytes);
        }
        let bytes = member.measure().map_or(0, ByteSize::bytes);
        let missed = ready.missed.iter().cloned().collect();
        // The start of the process is not an import: a fork of any zygote saves it.
        let imports = ready.imported.iter().map(|one| one.us).sum();
        let us = parent_us + if ready.imported.is_empty() { fresh.us } else { imports };
        let grown = Grown { set: set.clone(), missed, bytes, us };
        state.experience.became(scope, set, grown.clone());
        let id = state.tree.insert(Some(parent), scope, grown);
        state.slots.insert(id, Arc::new(ZygoteSlot::of(member)));
        self.counts.grown.fetch_add(1, Ordering::Relaxed);
        let gone = self.shrink(&mut state, self.budget.bytes(), None);
        drop(state);
        drop(gone);
    }

    pub(super) fn shrink(
        &self,
        state: &mut State,
        budget: u64,
        spared: Option<NodeId>,
    ) -> Vec<Arc<ZygoteSlot>> {
        let gone = state.tree.shrink(budget, spared, &state.demand, Instant::now());
        let gone: Vec<NodeId> = gone.iter().map(|node| node.id).collect();
        self.retire(state, &gone)
    }

    /// Takes zygotes out of the state and counts them as evicted; the caller drops them outside the
    /// lock.
    pub(super) fn retire(&self, state: &mut State, gone: &[NodeId]) -> Vec<Arc<ZygoteSlot>> {
        let slots: Vec<_> = gone.iter().filter_map(|id| state.slots.remove(id)).collect();
        let members = slots.iter().filter_map(|slot| slot.member.get());
        state.retired.extend(members.map(Arc::downgrade));
        self.counts.evicted.fetch_add(slots.len() as u64, Ordering::Relaxed);
        slots
    }
}

/// Refuses a zygote in which the shared set-up failed: each instance then runs the set-up again and
/// reports the failure.
fn set_up(set: &Set, fresh: Fresh) -> Result<Fresh> {
    let ready = fresh.member.zygote().ready();
    let ran = ready.imported.iter().any(|one| one.module == SHARED_SETUP);
    match set.code.is_none() || ran {
        true => Ok(fresh),
        false => Err(Error::SharedSetup),
    }
}

/// Refuses a zygote whose imports left threads running, because it cannot be forked safely.
fn single_threaded(fresh: Fresh) -> Result<Fresh> {
    match fresh.member.zygote().ready().threads {
        0 => Ok(fresh),
        threads => Err(Error::ImportsStartThreads { threads }),
    }
}
