//! The requests that wait for room: for each tenant in the order in which they came.

use std::collections::{BTreeMap, VecDeque};

use snowmelt_types::Tenant;
use tokio::sync::oneshot::Sender;

use crate::{Ask, Reservation};

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub number: u64,
    pub ask: Ask,
    pub sender: Sender<Reservation>,
}

/// All requests that wait.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    tenants: BTreeMap<Tenant, VecDeque<Waiter>>,
    length: usize,
    last: u64,
}

impl Queue {
    /// Adds a request; gives its number.
    pub fn push(&mut self, ask: Ask, sender: Sender<Reservation>) -> u64 {
        self.last += 1;
        self.length += 1;
        let (number, tenant) = (self.last, ask.tenant.clone());
        self.tenants.entry(tenant).or_default().push_back(Waiter { number, ask, sender });
        number
    }

    /// The request that goes next: the oldest one of the tenant with the smallest share; of tenants
    /// with the same share, the one whose request is older.
    pub fn next(&self, share: impl Fn(&Tenant) -> f64) -> Option<&Ask> {
        let heads = self.tenants.values().filter_map(VecDeque::front);
        let next = heads.min_by(|a, b| {
            let order = share(&a.ask.tenant).total_cmp(&share(&b.ask.tenant));
            order.then(a.number.cmp(&b.number))
        });
        next.map(|waiter| &waiter.ask)
    }

    /// Removes the oldest request of a tenant.
    pub fn pop(&mut self, tenant: &Tenant) -> Option<Waiter> {
        let waiter = self.tenants.get_mut(tenant)?.pop_front();
        self.removed(tenant, waiter.is_some());
        waiter
    }

    /// Removes a request that is given up; false if it does not wait any more.
    pub fn remove(&mut self, tenant: &Tenant, number: u64) -> bool {
        let Some(waiters) = self.tenants.get_mut(tenant) else { return false };
        // Numbers grow from the front to the back.
        let found = waiters.binary_search_by_key(&number, |waiter| waiter.number);
        let is_removed = found.is_ok_and(|index| waiters.remove(index).is_some());
        self.removed(tenant, is_removed);
        is_removed
    }

    pub fn len(&self) -> usize {
        self.length
    }

    fn removed(&mut self, tenant: &Tenant, is_removed: bool) {
        self.length -= usize::from(is_removed);
        if self.tenants.get(tenant).is_some_and(VecDeque::is_empty) {
            self.tenants.remove(tenant);
        }
    }
}
