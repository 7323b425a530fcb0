//! The queue of calls, gangs and tasks that wait for hosts. Calls of one function are served in the
//! order in which they came. Between tenants, the one whose running calls, gangs and tasks have the
//! least memory comes first.

use std::collections::{BTreeMap, VecDeque};

use snowmelt_types::{Digest, Tenant};

use super::call::Ticket;

/// The tickets that wait, by tenant and function.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    tenants: BTreeMap<Tenant, BTreeMap<Digest, VecDeque<Ticket>>>,
    waiting: usize,
}

impl Queue {
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Adds a call behind all others of its function.
    pub fn push(&mut self, tenant: &Tenant, function: &Digest, ticket: Ticket) {
        self.line(tenant, function).push_back(ticket);
        self.waiting += 1;
    }

    /// Adds a call that a host has refused, at the place where it stood before: tickets of a
    /// function are in ascending order.
    pub fn push_again(&mut self, tenant: &Tenant, function: &Digest, ticket: Ticket) {
        let line = self.line(tenant, function);
        let at = line.partition_point(|other| *other < ticket);
        line.insert(at, ticket);
        self.waiting += 1;
    }

    /// Removes a call. Returns false if it does not wait.
    pub fn remove(&mut self, tenant: &Tenant, function: &Digest, ticket: Ticket) -> bool {
        let Some(functions) = self.tenants.get_mut(tenant) else { return false };
        let Some(line) = functions.get_mut(function) else { return false };
        let Ok(at) = line.binary_search(&ticket) else { return false };
        line.remove(at);
        if line.is_empty() {
            functions.remove(function);
        }
        if functions.is_empty() {
            self.tenants.remove(tenant);
        }
        self.waiting -= 1;
        true
    }

    /// The first call of each function of a tenant, the oldest first.
    pub fn first_of(&self, tenant: &Tenant) -> Vec<Ticket> {
        let functions = self.tenants.get(tenant).into_iter().flatten();
        let mut first: Vec<_> = functions.filter_map(|(_, line)| line.front().copied()).collect();
        first.sort_unstable();
        first
    }

    /// The first call of each function of each tenant.
    pub fn first(&self) -> impl Iterator<Item = Ticket> {
        let functions = self.tenants.values().flatten();
        functions.filter_map(|(_, line)| line.front().copied())
    }

    /// The tenants with waiting calls.
    pub fn tenants(&self) -> impl Iterator<Item = &Tenant> {
        self.tenants.keys()
    }

    fn line(&mut self, tenant: &Tenant, function: &Digest) -> &mut VecDeque<Ticket> {
        let functions = self.tenants.entry(tenant.clone()).or_default();
        functions.entry(function.clone()).or_default()
    }
}
