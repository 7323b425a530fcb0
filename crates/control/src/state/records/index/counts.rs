//! Sums of asynchronous calls by tenant and function, and the owners that have most of them.
//!
//! Invariant: each number is a sum over the entries that were added and not removed, and the ranks
//! have exactly the tenants and functions with ended calls. So the cost of a write grows with the
//! logarithm of the stored amount, whoever has stored it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use snowmelt_types::{FunctionName, InvocationId, Tenant};

use super::FunctionId;

/// The index entry of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::state::records) struct CallEntry {
    /// The function that is called.
    pub function: FunctionId,
    /// The length of the call's record, in bytes.
    pub bytes: u64,
    /// The time until which the answer is kept, in milliseconds since 1970; absent while the call
    /// has not ended.
    pub until_ms: Option<u64>,
}

impl CallEntry {
    /// Makes the entry of a call that has not ended.
    pub fn waiting(function: FunctionId, bytes: usize) -> Self {
        Self { function, bytes: bytes as u64, until_ms: None }
    }
}

/// A number of calls, and the bytes of their records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub calls: usize,
    pub bytes: u64,
}

/// The calls of one owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub waiting: Sum,
    pub ended: Sum,
}

/// The amount by which owners are ranked.
#[derive(Clone, Copy, Debug)]
pub(super) enum By {
    Calls,
    Bytes,
}

/// The sums of all tenants, and their ranks by all of their calls, those that wait included.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TenantCounts {
    sums: Sums,
    tenants: BTreeMap<Tenant, OfTenant>,
    ranks: Ranks<Tenant>,
}

/// The sums of a tenant, and the ranks of its functions by their ended calls.
#[derive(Clone, Debug, Default, PartialEq)]
struct OfTenant {
    sums: Sums,
    functions: BTreeMap<FunctionName, OfFunction>,
    ranks: Ranks<FunctionName>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct OfFunction {
    sums: Sums,
    // Identifiers sort by the time of acceptance, so the first is the oldest.
    ended: BTreeSet<InvocationId>,
}

/// Owners of ended calls, in the order of their amounts.
#[derive(Clone, Debug, PartialEq)]
struct Ranks<K> {
    calls: BTreeSet<(usize, K)>,
    bytes: BTreeSet<(u64, K)>,
}

impl Sum {
    fn add(&mut self, bytes: u64) {
        (self.calls, self.bytes) = (self.calls + 1, self.bytes + bytes);
    }

    fn subtract(&mut self, bytes: u64) {
        (self.calls, self.bytes) = (self.calls - 1, self.bytes - bytes);
    }
}

impl Sums {
    /// Returns the sum of the calls that wait and the calls that have ended.
    pub fn all(&self) -> Sum {
        let Self { waiting, ended } = self;
        Sum { calls: waiting.calls + ended.calls, bytes: waiting.bytes + ended.bytes }
    }

    fn change(&mut self, entry: &CallEntry, by: fn(&mut Sum, u64)) {
        let sum = if entry.until_ms.is_some() { &mut self.ended } else { &mut self.waiting };
        by(sum, entry.bytes);
    }
}

impl<K> Default for Ranks<K> {
    fn default() -> Self {
        Self { calls: BTreeSet::new(), bytes: BTreeSet::new() }
    }
}

impl<K: Clone + Ord> Ranks<K> {
    fn remove(&mut self, owner: &K, had: Sum) {
        self.calls.remove(&(had.calls, owner.clone()));
        self.bytes.remove(&(had.bytes, owner.clone()));
    }

    /// Adds an owner to the ranks. An owner without ended calls has no rank.
    fn insert(&mut self, owner: &K, ended: Sum, has: Sum) {
        if ended.calls > 0 {
            self.calls.insert((has.calls, owner.clone()));
            self.bytes.insert((has.bytes, owner.clone()));
        }
    }

    fn most(&self, by: By) -> Option<&K> {
        match by {
            By::Calls => self.calls.last().map(|(_, owner)| owner),
            By::Bytes => self.bytes.last().map(|(_, owner)| owner),
        }
    }
}

impl TenantCounts {
    /// Counts a call.
    pub fn add(&mut self, id: &InvocationId, entry: &CallEntry) {
        self.change(entry, Sum::add, |ended| ended.insert(id.clone()));
    }

    /// Counts a call no longer.
    pub fn remove(&mut self, id: &InvocationId, entry: &CallEntry) {
        self.change(entry, Sum::subtract, |ended| ended.remove(id));
    }

    /// Returns the sums of the calls of all tenants.
    pub fn all(&self) -> Sums {
        self.sums
    }

    pub fn of_tenant(&self, tenant: &Tenant) -> Sums {
        self.tenants.get(tenant).map_or_else(Sums::default, |of| of.sums)
    }

    pub fn of_function(&self, function: &FunctionId) -> Sums {
        self.function(function).map_or_else(Sums::default, |own| own.sums)
    }

    /// Returns the oldest ended call of a function.
    pub fn oldest_of(&self, function: &FunctionId) -> Option<&InvocationId> {
        self.function(function)?.ended.first()
    }

    /// Returns the oldest ended call of the function that has most of them, of the tenant that has
    /// most calls.
    pub fn oldest_of_most(&self, by: By) -> Option<&InvocationId> {
        let of = self.tenants.get(self.ranks.most(by)?)?;
        of.functions.get(of.ranks.most(by)?)?.ended.first()
    }

    /// Returns all ended calls of a tenant.
    pub fn ended_of(&self, tenant: &Tenant) -> impl Iterator<Item = &InvocationId> {
        let functions = self.tenants.get(tenant).into_iter().flat_map(|of| of.functions.values());
        functions.flat_map(|own| &own.ended)
    }

    fn function(&self, FunctionId { tenant, name }: &FunctionId) -> Option<&OfFunction> {
        self.tenants.get(tenant)?.functions.get(name)
    }

    fn change(
        &mut self,
        entry: &CallEntry,
        by: fn(&mut Sum, u64),
        change_ended: impl FnOnce(&mut BTreeSet<InvocationId>) -> bool,
    ) {
        let FunctionId { tenant, name } = &entry.function;
        let of = self.tenants.entry(tenant.clone()).or_default();
        let own = of.functions.entry(name.clone()).or_default();
        self.ranks.remove(tenant, of.sums.all());
        of.ranks.remove(name, own.sums.ended);
        if entry.until_ms.is_some() {
            change_ended(&mut own.ended);
        }
        for sums in [&mut own.sums, &mut of.sums, &mut self.sums] {
            sums.change(entry, by);
        }
        of.ranks.insert(name, own.sums.ended, own.sums.ended);
        self.ranks.insert(tenant, of.sums.ended, of.sums.all());
        if own.sums.all().calls == 0 {
            of.functions.remove(name);
        }
        if of.functions.is_empty() {
            self.tenants.remove(tenant);
        }
    }
}
