//! Slots for first zygotes, those that are below no other: the spawner has a range of user ids for
//! each, and so a limited number. Who gets one, and which idle zygote makes room.
//!
//! Invariant: no tenant takes the last quarter of the slots while it has a quarter of them, so
//! whoever has none finds one, unless that quarter is in use by others like it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use snowmelt_types::Tenant;

use super::cache::{Inner, State};
use super::member::Member;
use super::start::{Fresh, Source};
use super::tree::NodeId;
use crate::{Error, Result};

/// How long a zygote may wait for a slot: most calls end sooner.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often it is looked whether another zygote has become idle.
const LOOKED_EVERY: Duration = Duration::from_millis(20);

/// Who has slots.
#[derive(Debug)]
pub(super) struct Admission {
    most: u32,
    held: Arc<Mutex<Held>>,
}

#[derive(Debug, Default)]
struct Held {
    by: BTreeMap<Tenant, u32>,
    last: u64,
}

/// A slot, as long as it is held.
#[derive(Debug)]
pub(crate) struct Admitted {
    number: u64,
    tenant: Tenant,
    held: Arc<Mutex<Held>>,
}

/// A first zygote that nobody uses.
#[derive(Debug, PartialEq)]
struct Idle {
    slot: u64,
    tenant: Tenant,
    /// Microseconds that it and those below it are likely to save.
    useful: f64,
    /// When it was asked for last; none for one that is kept for its idle instances alone.
    used: Option<Instant>,
    /// Its place in the tree.
    node: Option<NodeId>,
}

impl Admission {
    pub fn new(most: u32) -> Self {
        Self { most, held: Arc::default() }
    }

    /// A slot, if the tenant may have one now.
    fn take(&self, tenant: &Tenant) -> Option<Admitted> {
        let mut held = lock(&self.held);
        let free = self.most.saturating_sub(held.total());
        let has = held.by.get(tenant).copied().unwrap_or(0);
        if free == 0 || (has >= self.share() && free <= self.reserve()) {
            return None;
        }
        held.last += 1;
        *held.by.entry(tenant.clone()).or_default() += 1;
        let (number, tenant) = (held.last, tenant.clone());
        Some(Admitted { number, tenant, held: Arc::clone(&self.held) })
    }

    /// What is there for every tenant.
    fn share(&self) -> u32 {
        (self.most / 4).max(1)
    }

    /// What is kept for tenants that have less than their share.
    fn reserve(&self) -> u32 {
        self.most / 4
    }

    /// Which of these makes room for a tenant: of those who have more than their share before
    /// others, and then the one of least use. Where slots are free but not for this tenant, one of
    /// its own.
    fn victim(&self, tenant: &Tenant, idle: Vec<Idle>) -> Option<Idle> {
        let held = lock(&self.held);
        let has = |tenant: &Tenant| held.by.get(tenant).copied().unwrap_or(0);
        let own_only = held.total() < self.most || has(tenant) >= self.share();
        let allowed = idle.into_iter().filter(|one| !own_only || one.tenant == *tenant);
        let modest = |one: &Idle| has(&one.tenant) <= self.share();
        allowed.min_by(|a, b| {
            let order = modest(a).cmp(&modest(b)).then(a.useful.total_cmp(&b.useful));
            order.then(a.used.cmp(&b.used))
        })
    }

    fn refusal(&self, tenant: &Tenant) -> Error {
        let held = lock(&self.held).by.get(tenant).copied().unwrap_or(0);
        Error::ZygotesBusy { tenant: tenant.clone(), held, most: self.most }
    }
}

impl Held {
    fn total(&self) -> u32 {
        self.by.values().sum()
    }
}

impl Admitted {
    /// Numbers are given once.
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut held = lock(&self.held);
        if let Some(count) = held.by.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                held.by.remove(&self.tenant);
            }
        }
    }
}

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    /// Starts the first zygote of a place, once there is a slot for it.
    pub(super) async fn start_first(&self, tenant: &Tenant, source: &Source) -> Result<Fresh> {
        let deadline = Instant::now() + PATIENCE;
        let admitted = self.admit(tenant, deadline).await?;
        loop {
            match source.root(&self.spawner).await {
                // Those that made room may not have ended yet.
                Err(Error::Sandbox(snowmelt_sandbox::Error::ZygoteSlots { .. }))
                    if Instant::now() < deadline =>
                {
                    tokio::time::sleep(LOOKED_EVERY).await;
                }
                fresh => {
                    let Fresh { member, us } = fresh?;
                    return Ok(Fresh { member: member.admitted(admitted), us });
                }
            }
        }
    }

    async fn admit(&self, tenant: &Tenant, deadline: Instant) -> Result<Admitted> {
        loop {
            if let Some(admitted) = self.admission.take(tenant) {
                return Ok(admitted);
            }
            let has_evicted = self.evict_one(tenant);
            if has_evicted && let Some(admitted) = self.admission.take(tenant) {
                return Ok(admitted);
            }
            if Instant::now() >= deadline {
                return Err(self.admission.refusal(tenant));
            }
            tokio::time::sleep(LOOKED_EVERY).await;
        }
    }

    /// Lets go of the idle zygote that is of least use, with its idle instances.
    fn evict_one(&self, tenant: &Tenant) -> bool {
        let mut state = self.lock();
        let idle = self.idle_zygotes(&state);
        let Some(victim) = self.admission.victim(tenant, idle) else { return false };
        let gone = victim.node.map(|node| state.tree.remove(node)).unwrap_or_default();
        let gone = self.retire(&mut state, &gone);
        drop(state);
        tracing::debug!(tenant = %victim.tenant, "an idle zygote makes room for another");
        drop(gone);
        drop(self.idle.evict(|instance| instance.slot() == Some(victim.slot)));
        true
    }

    /// First zygotes all of whose instances are idle.
    fn idle_zygotes(&self, state: &State) -> Vec<Idle> {
        let paused = self.idle.tally(|instance| instance.slot());
        let children = children(state);
        let is_idle = |slot: &u64| {
            let paused = paused.get(slot).copied().unwrap_or(0);
            children.get(slot).is_none_or(|children| *children as usize <= paused)
        };
        let now = Instant::now();
        let kept = state.tree.all().filter(|node| node.parent.is_none()).filter_map(|root| {
            let place = state.slots.get(&root.id)?;
            let slot = place.member.get()?.slot()?.number;
            if !is_idle(&slot) {
                return None;
            }
            let useful = state.tree.saved_by_all_of(root, &state.demand, now);
            let (tenant, node) = (root.place.tenant.clone(), Some(root.id));
            Some(Idle { slot, tenant, useful, used: Some(place.used()), node })
        });
        let retired = state.retired.iter().filter_map(|member| {
            let member = member.upgrade()?;
            let slot = member.slot()?;
            let (slot, tenant) = (slot.number, slot.tenant.clone());
            let idle = Idle { slot, tenant, useful: 0.0, used: None, node: None };
            (is_idle(&slot) && paused.contains_key(&slot)).then_some(idle)
        });
        kept.chain(retired).collect()
    }
}

/// How many children live below each first zygote.
fn children(state: &State) -> BTreeMap<u64, u32> {
    let kept = state.slots.values().filter_map(|slot| slot.member.get().cloned());
    let retired = state.retired.iter().filter_map(std::sync::Weak::upgrade);
    let mut children = BTreeMap::new();
    for member in kept.chain(retired) {
        let member: &Member = &member;
        if let Some(slot) = member.slot() {
            *children.entry(slot.number).or_default() += member.children();
        }
    }
    children
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Tenant {
        name.parse().unwrap()
    }

    fn idle(tenant_name: &str, slot: u64, useful: f64) -> Idle {
        Idle { slot, tenant: tenant(tenant_name), useful, used: None, node: None }
    }

    #[test]
    fn one_tenant_cannot_take_all_and_others_have_their_share() {
        let admission = Admission::new(8);
        let take = |name| admission.take(&tenant(name));
        let greedy: Vec<_> = std::iter::from_fn(|| take("greedy")).collect();
        assert_eq!(greedy.len(), 6);
        let (one, other) = (take("one").unwrap(), take("other").unwrap());
        assert!(take("third").is_none() && take("greedy").is_none());
        drop(one);
        assert!(take("greedy").is_none(), "it has more than its share");
        assert!(take("third").is_some());
        drop(other);
        drop(greedy);
        assert_eq!(admission.held.lock().unwrap().total(), 0);
    }

    #[test]
    fn a_tenant_with_more_than_its_share_makes_room_first_and_the_least_useful_zygote_of_it() {
        let admission = Admission::new(4);
        let _greedy: Vec<_> = (0..3).map(|_| admission.take(&tenant("greedy"))).collect();
        let _modest = admission.take(&tenant("modest")).unwrap();
        let all = || vec![idle("modest", 1, 0.0), idle("greedy", 2, 9.0), idle("greedy", 3, 5.0)];
        let victim = |name| admission.victim(&tenant(name), all()).map(|idle| idle.slot);
        assert_eq!(victim("new"), Some(3));
        assert_eq!(victim("greedy"), Some(3));
        assert_eq!(victim("modest"), Some(1), "it has its share, and no more of others'");
    }

    #[test]
    fn whoever_has_its_share_makes_room_for_itself() {
        let admission = Admission::new(8);
        let _greedy: Vec<_> = (0..6).map(|_| admission.take(&tenant("greedy"))).collect();
        let _other = admission.take(&tenant("other")).unwrap();
        let all = || vec![idle("other", 1, 0.0), idle("greedy", 2, 9.0)];
        let victim = admission.victim(&tenant("greedy"), all());
        assert_eq!(victim.map(|idle| idle.slot), Some(2));
    }
}
