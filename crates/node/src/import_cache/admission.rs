//! Slots for first zygotes (those without a parent zygote). The spawner has a range of user ids for
//! each slot, so their number is limited. This module decides which tenant gets a slot, and which
//! idle zygote makes room.
//!
//! Invariant: a tenant that has a quarter of the slots cannot take the last quarter, so a tenant
//! without a slot finds one, unless other tenants with few slots use that quarter.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use snowmelt_types::Tenant;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::model::tree::NodeId;
use crate::Error;

/// The number of slots for first zygotes, and how many of them each tenant has.
#[derive(Debug)]
pub(super) struct Admission {
    most: u32,
    held: Arc<Mutex<SlotHolders>>,
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct SlotHolders {
    by: BTreeMap<Tenant, u32>,
    last: u64,
}

/// A slot for a first zygote; dropping the value frees the slot.
#[derive(Debug)]
pub(crate) struct Admitted {
    number: u64,
    tenant: Tenant,
    held: Arc<Mutex<SlotHolders>>,
    changed: Arc<Notify>,
}

/// A first zygote that is not in use.
#[derive(Debug, PartialEq)]
pub(super) struct IdleZygote {
    pub(super) slot: u64,
    pub(super) tenant: Tenant,
    /// The time, in microseconds, that the zygote and those grown from it are likely to save.
    pub(super) useful: f64,
    /// When the zygote was used last; `None` for one that is kept only for its idle instances.
    pub(super) used: Option<Instant>,
    /// The zygote's node in the tree of kept zygotes; `None` for one that is not kept any more.
    pub(super) node: Option<NodeId>,
}

impl Admission {
    pub fn new(most: u32) -> Self {
        Self { most, held: Arc::default(), changed: Arc::default() }
    }

    /// Waits until a slot has become free, or a zygote that may make room has become idle, after
    /// this call.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Wakes everybody who waits for a slot, because a zygote may have become idle.
    pub(super) fn may_be_idle(&self) {
        self.changed.notify_waiters();
    }

    /// Takes a slot; `None` if the tenant may not have one now.
    pub(super) fn take(&self, tenant: &Tenant) -> Option<Admitted> {
        let mut held = lock(&self.held);
        let free = self.most.saturating_sub(held.total());
        let has = held.by.get(tenant).copied().unwrap_or(0);
        // Who has its share leaves the reserve to those who have less.
        if free == 0 || (has >= self.share() && free <= self.reserve()) {
            return None;
        }
        held.last += 1;
        *held.by.entry(tenant.clone()).or_default() += 1;
        let number = held.last;
        let tenant = tenant.clone();
        drop(held);
        let held = Arc::clone(&self.held);
        let changed = Arc::clone(&self.changed);
        Some(Admitted { number, tenant, held, changed })
    }

    /// Returns the number of slots that is the share of every tenant: a quarter, but at least one.
    fn share(&self) -> u32 {
        (self.most / 4).max(1)
    }

    /// Returns the number of slots reserved for tenants that have less than their share.
    fn reserve(&self) -> u32 {
        self.most / 4
    }

    /// Returns the idle zygote that makes room for a tenant: one of a tenant with more than its
    /// share if there is any, and among several the one of least use. If slots are free but not for
    /// this tenant, only its own zygotes are looked at.
    pub(super) fn victim(&self, tenant: &Tenant, idle: Vec<IdleZygote>) -> Option<IdleZygote> {
        let held = lock(&self.held);
        let has = |tenant: &Tenant| held.by.get(tenant).copied().unwrap_or(0);
        let own_only = held.total() < self.most || has(tenant) >= self.share();
        let allowed = idle.into_iter().filter(|one| !own_only || one.tenant == *tenant);
        let modest = |one: &IdleZygote| has(&one.tenant) <= self.share();
        allowed.min_by(|a, b| {
            let order = modest(a).cmp(&modest(b)).then(a.useful.total_cmp(&b.useful));
            order.then(a.used.cmp(&b.used))
        })
    }

    /// Makes the error for a tenant that gets no slot.
    pub(super) fn refusal(&self, tenant: &Tenant) -> Error {
        let held = lock(&self.held).by.get(tenant).copied().unwrap_or(0);
        Error::ZygotesBusy { tenant: tenant.clone(), held, most: self.most }
    }
}

impl SlotHolders {
    fn total(&self) -> u32 {
        self.by.values().sum()
    }
}

impl Admitted {
    /// Returns the number of the slot, which is never used again.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the tenant that has the slot.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// Notes that a child of the slot's zygote has ended, so the zygote may be idle.
    pub(super) fn child_ended(&self) {
        self.changed.notify_waiters();
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
        // Before the waiters wake up, whose first step is this lock.
        drop(held);
        self.changed.notify_waiters();
    }
}

fn lock(held: &Mutex<SlotHolders>) -> MutexGuard<'_, SlotHolders> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn tenant(name: &str) -> Tenant {
        name.parse().unwrap()
    }

    fn idle(tenant_name: &str, slot: u64, useful: f64) -> IdleZygote {
        IdleZygote { slot, tenant: tenant(tenant_name), useful, used: None, node: None }
    }

    #[test]
    fn one_tenant_cannot_take_all_and_others_have_their_share() {
        let admission = Admission::new(8);
        let take = |name| admission.take(&tenant(name));
        let greedy: Vec<_> = std::iter::from_fn(|| take("greedy")).collect();
        assert_eq!(greedy.len(), 6);
        let one = take("one").unwrap();
        let other = take("other").unwrap();
        assert!(take("third").is_none() && take("greedy").is_none());
        drop(one);
        assert!(take("greedy").is_none(), "it has more than its share");
        assert!(take("third").is_some());
        drop(other);
        drop(greedy);
        assert_eq!(admission.held.lock().unwrap().total(), 0);
    }

    #[test]
    fn a_slot_that_becomes_free_wakes_all_that_wait_for_one() {
        let admission = Admission::new(1);
        let slot = admission.take(&tenant("one")).unwrap();
        let mut waiting = [admission.changed(), admission.changed()].map(Box::pin);
        assert!(waiting.iter_mut().all(|one| one.now_or_never().is_none()));
        drop(slot);
        assert!(waiting.iter_mut().all(|one| one.now_or_never().is_some()));
        let slot = admission.take(&tenant("two")).unwrap();
        let waiting = admission.changed();
        slot.child_ended();
        assert!(waiting.now_or_never().is_some(), "its zygote may make room now");
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
    fn a_tenant_with_its_share_evicts_its_own_zygotes() {
        let admission = Admission::new(8);
        let _greedy: Vec<_> = (0..6).map(|_| admission.take(&tenant("greedy"))).collect();
        let _other = admission.take(&tenant("other")).unwrap();
        let all = || vec![idle("other", 1, 0.0), idle("greedy", 2, 9.0)];
        let victim = admission.victim(&tenant("greedy"), all());
        assert_eq!(victim.map(|idle| idle.slot), Some(2));
    }
}
