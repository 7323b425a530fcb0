//! The running zygotes: looked up for each fork, grown when that is worth their memory, released
//! when it is not.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use snowmelt_api::ImportFigures;
use snowmelt_sandbox::{ForkSpec, Sandbox, Spawner};
use snowmelt_types::{ByteSize, Tenant};

use super::admission::Admission;
use super::first_start;
use super::model::plan::Growth;
use super::model::tree::{NodeId, ZygoteNode};
use super::model::want::Want;
use super::running_zygote::{Child, ImportCoverage, ZygoteMember};
use super::state::{IdleChildren, ImportCounts, Inner, State};
use super::zygote_process::ZygoteSlot;
use super::zygote_start::{Fresh, ZygoteSource};
use crate::resources::account::{Account, ZygoteRoom};
use crate::{Error, Result};

/// How often a fork is tried: one that fails is tried once more, with another zygote.
const TRIES: usize = 2;

/// The zygotes of a node. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ImportCache {
    inner: Arc<Inner>,
}

impl ImportCache {
    /// Makes a cache of at most `slots` first zygotes. Where one of them has to make room, its
    /// instances in `idle` are ended.
    pub fn new(
        spawner: Spawner,
        account: Account,
        budget: ByteSize,
        slots: u32,
        idle: Arc<dyn IdleChildren>,
    ) -> Self {
        let state = Mutex::default();
        let counts = ImportCounts::default();
        let admission = Admission::new(slots);
        let inner = Inner { spawner, account, budget, state, counts, admission, idle };
        Self { inner: Arc::new(inner) }
    }

    /// Forks a child for each of `specs`, all for one function and in one request. Each child fails
    /// or starts by itself. If the first zygote has to be started, it takes `room`.
    pub async fn fork(
        &self,
        want: &Want,
        source: &ZygoteSource,
        specs: Vec<ForkSpec>,
        room: &ZygoteRoom,
    ) -> Vec<Result<(Sandbox, Child)>> {
        // Before the look-up: this demand may be what makes a zygote worth its memory.
        self.inner.note(want, source, specs.len());
        self.grow_if_worth(want, room).await;
        let mut done: Vec<Option<Result<(Sandbox, Child)>>> = specs.iter().map(|_| None).collect();
        for _ in 0..TRIES {
            let failed = |one: &Option<Result<_>>| !matches!(one, Some(Ok(_)));
            let open: Vec<usize> = (0..done.len()).filter(|i| failed(&done[*i])).collect();
            if open.is_empty() {
                break;
            }
            let wanted = open.iter().map(|index| specs[*index].clone()).collect();
            let forked = self.inner.fork(want, source, wanted, room).await;
            for (index, result) in open.into_iter().zip(forked) {
                done[index] = Some(result);
            }
        }
        let lost = || Err(Error::NOT_STARTED);
        done.into_iter().map(|one| one.unwrap_or_else(lost)).collect()
    }

    /// Grows a zygote of all that a function declares, whatever was demanded so far.
    pub async fn warm(&self, want: &Want, source: &ZygoteSource) {
        // A want is worth a zygote once it was demanded twice.
        self.inner.note(want, source, 2);
        self.grow_if_worth(want, &ZygoteRoom::default()).await;
    }

    /// Forgets faded demand, releases unused zygotes, and grows those that are worth it. To be
    /// called regularly.
    pub fn maintain(&self, now: Instant) {
        let growth = self.inner.maintain(now);
        if let Some(growth) = growth {
            let cache = self.clone();
            tokio::spawn(async move { cache.inner.grow(growth, &ZygoteRoom::default()).await });
        }
    }

    /// Ends all zygotes with their children.
    pub fn clear(&self) {
        let state = std::mem::take(&mut *self.inner.lock());
        for slot in state.slots.values() {
            slot.member.get().inspect(|member| member.kill());
        }
    }

    /// Notes that an instance has become idle, so its zygote may make room for another.
    pub fn instance_is_idle(&self) {
        self.inner.admission.may_be_idle();
    }

    /// Returns the number of kept zygotes that have been started.
    pub fn len(&self) -> usize {
        let state = self.inner.lock();
        state.slots.values().filter(|slot| slot.member.initialized()).count()
    }

    /// Returns the metrics of the cache.
    pub fn figures(&self, now: Instant) -> ImportFigures {
        self.inner.figures(now)
    }

    /// Returns the zygote that [`Self::fork`] would fork now, for `count` children that must all be
    /// its own, and how much of the want it has imported.
    pub async fn choose(
        &self,
        want: &Want,
        source: &ZygoteSource,
        count: usize,
        room: &ZygoteRoom,
    ) -> Result<(Arc<ZygoteMember>, ImportCoverage)> {
        self.inner.note(want, source, count);
        self.grow_if_worth(want, room).await;
        loop {
            let (slot, found) = self.inner.find(want, count);
            let member = self.inner.member(&want.scope.tenant, &slot, source, room).await?;
            if member.is_alive() {
                return Ok((member, found));
            }
            // The lost zygote is not found again, so the loop comes to an end at a root that is
            // started.
            self.inner.lose(&slot);
        }
    }

    /// Returns whether a fork for this want would have to start a zygote first. A zygote that is
    /// being started is not lacking.
    pub fn lacks(&self, want: &Want) -> bool {
        let state = self.inner.lock();
        let found = state.tree.best(want, |_| true).and_then(|node| state.slots.get(&node.id));
        found.is_none_or(|slot| slot.is_dead())
    }

    /// Releases a zygote that has ended, so that it is not found again.
    pub fn release(&self, member: &Arc<ZygoteMember>) {
        let is_it =
            |slot: &&Arc<ZygoteSlot>| slot.member.get().is_some_and(|m| Arc::ptr_eq(m, member));
        let slot = self.inner.lock().slots.values().find(is_it).cloned();
        if let Some(slot) = slot {
            self.inner.lose(&slot);
        }
    }

    async fn grow_if_worth(&self, want: &Want, room: &ZygoteRoom) {
        let Some(growth) = self.inner.wanted(want) else { return };
        self.inner.grow(growth, room).await;
    }
}

impl Inner {
    fn note(&self, want: &Want, source: &ZygoteSource, times: usize) {
        // Shared set-ups run in a zygote, also for the first instance: see `ImportCache::warm`.
        let times = if want.set.code.is_some() { times.max(2) } else { times };
        let mut state = self.lock();
        state.demand.note(want, times, Instant::now());
        state.sources.entry(want.clone()).or_insert_with(|| source.clone());
    }

    /// Returns the growth of a zygote for this very want, if the want should have a zygote of its
    /// own now. The import takes as long in the zygote as it would in the child, so the caller can
    /// wait for it.
    fn wanted(&self, want: &Want) -> Option<Growth> {
        let mut state = self.lock();
        let state = &mut *state;
        self.lookup(state, want);
        let now = Instant::now();
        state.experience.worth(want, &state.tree, &state.demand, self.budget.bytes(), now)
    }

    async fn fork(
        &self,
        want: &Want,
        source: &ZygoteSource,
        specs: Vec<ForkSpec>,
        room: &ZygoteRoom,
    ) -> Vec<Result<(Sandbox, Child)>> {
        let (slot, found) = self.find(want, specs.len());
        let member = match self.member(&want.scope.tenant, &slot, source, room).await {
            Ok(member) => member,
            Err(error) => return failures(error, specs.len()),
        };
        let forked = self.spawner.fork_many(member.zygote(), specs).await;
        if forked.iter().any(|one| one.as_ref().is_err_and(blames_the_zygote)) {
            tracing::debug!("a zygote failed to fork and is released");
            // For the next attempt, which finds another zygote or starts one.
            self.lose(&slot);
        }
        let with_child = |sandbox| (sandbox, member.child(found));
        forked.into_iter().map(|one| one.map(with_child).map_err(Error::from)).collect()
    }

    /// Returns the slot of the zygote for a want, counted as found `times` times.
    fn find(&self, want: &Want, times: usize) -> (Arc<ZygoteSlot>, ImportCoverage) {
        let mut state = self.lock();
        let id = self.lookup(&mut state, want);
        let found = self.count(state.tree.get(id), want, times);
        (Arc::clone(&state.slots[&id]), found)
    }

    /// Looks up a zygote, and makes the slot of a root that has to be started. Zygotes that have
    /// ended are released immediately, and not by the maintenance of the next second: with a lane
    /// of the spawner all of its zygotes end.
    fn lookup(&self, state: &mut State, want: &Want) -> NodeId {
        let mut id = state.tree.lookup(want);
        while state.slots.get(&id).is_some_and(|slot| slot.is_dead()) {
            let gone = state.tree.remove(id);
            // Dropping zygotes that have ended kills nothing.
            drop(self.retire(state, &gone));
            id = state.tree.lookup(want);
        }
        // Made under the lock and started outside of it: all callers of the same want wait for one
        // start.
        let slot = state.slots.entry(id).or_insert_with(|| Arc::new(ZygoteSlot::new()));
        slot.touch();
        id
    }

    fn count(&self, node: Option<&ZygoteNode>, want: &Want, times: usize) -> ImportCoverage {
        let imported = node.map_or(0, |node| node.grown.set.modules.len());
        let is_all = node.is_some_and(|node| node.grown.set.is_all_of(&want.set));
        let (found, counter) = match imported {
            _ if is_all => (ImportCoverage::All, &self.counts.hits),
            0 => (ImportCoverage::Nothing, &self.counts.bare),
            _ => (ImportCoverage::Part, &self.counts.partial),
        };
        counter.fetch_add(times as u64, Ordering::Relaxed);
        found
    }

    /// Returns the process of a slot; a root is started by the first caller that needs it.
    pub(super) async fn member(
        &self,
        tenant: &Tenant,
        slot: &Arc<ZygoteSlot>,
        source: &ZygoteSource,
        room: &ZygoteRoom,
    ) -> Result<Arc<ZygoteMember>> {
        // The deadline is each caller's own: when the start for one caller has failed, the next one
        // tries.
        let deadline = first_start::deadline();
        let start = || async {
            // Boxed, so that callers that find a zygote do not carry its size.
            let starting = self.start_first(tenant, source, deadline, room);
            let Fresh { member, us } = Box::pin(starting).await?;
            let member = Arc::new(member);
            self.measured_root(slot, &member, us);
            Ok::<_, Error>(member)
        };
        Ok(Arc::clone(slot.member.get_or_try_init(start).await?))
    }

    fn measured_root(&self, slot: &Arc<ZygoteSlot>, member: &ZygoteMember, us: u64) {
        let mut state = self.lock();
        let state = &mut *state;
        let id = state.slots.iter().find(|(_, one)| Arc::ptr_eq(one, slot)).map(|(id, _)| *id);
        let Some(node) = id.and_then(|id| state.tree.get_mut(id)) else { return };
        node.grown.us = us;
        node.grown.bytes = member.measure().map_or(node.grown.bytes, ByteSize::bytes);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether another zygote may do what this one could not. A zygote whose lane of the
/// spawner is lost is gone.
fn blames_the_zygote(error: &snowmelt_sandbox::Error) -> bool {
    !matches!(error, snowmelt_sandbox::Error::Spec { .. })
}

fn failures<T>(error: Error, count: usize) -> Vec<Result<T>> {
    use snowmelt_types::Report;
    let report = error.report();
    let again = || Err(Error::Report(Box::new(report.clone())));
    let mut failures = vec![Err(error)];
    failures.extend((1..count).map(|_| again()));
    failures
}
