//! The index of all asynchronous calls: their functions, their lengths, and until when their
//! answers are kept.
//!
//! Invariant: the index equals the entries in the store. A write is first planned ([`Planned`]),
//! then written, then kept here, so that a write that fails changes nothing.

mod counts;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use snowmelt_types::{ByteSize, InvocationId, Tenant};

use super::FunctionId;
use crate::now_ms;
pub(super) use counts::CallEntry;
use counts::{By, Sum, TenantCounts};

/// The most calls of one function that may wait.
const MAX_WAITING: usize = 10_000;
/// The most bytes of the waiting calls of one function together.
const MAX_WAITING_BYTES: ByteSize = ByteSize::mib(256);
/// The most answers of one function that are kept.
const MAX_ENDED: usize = 10_000;
/// The most bytes of the kept answers of one function together. A longer answer is kept alone.
const MAX_ENDED_BYTES: ByteSize = ByteSize::mib(256);
/// The most bytes of the calls of all functions together.
const MAX_BYTES: ByteSize = ByteSize::mib(2048);
/// The most calls of all functions together: each takes about a kilobyte of this index.
const MAX_CALLS: usize = 100_000;
/// The divisor of a tenant's share: its calls that wait may take a third of the room that is left,
/// which is a quarter of all if it is the only tenant. Waiting calls are never removed, so a fixed
/// share of each tenant would let a few tenants take the room of all others.
const SHARE_OF_ROOM: usize = 3;
/// The most calls that one write removes. A transaction with more of them delays the calls of all
/// tenants, and etcd takes two keys of each in 128. The next write goes on with the removal.
pub(super) const MAX_REMOVED: usize = 60;
/// The most calls that one write adds, ends and removes.
const MAX_TOGETHER: usize = 62;

/// The reason why a call is not accepted: the amount that waits already, and its owner.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Full {
    Calls(Of, usize),
    Bytes(Of, ByteSize),
}

/// The owners of calls whose amounts have a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Function,
    Tenant,
    All,
}

/// The entries, and sums over them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CallIndex {
    // Identifiers sort by the time of acceptance, so the first is the oldest.
    entries: BTreeMap<InvocationId, CallEntry>,
    counts: TenantCounts,
    // Ended ones by the time until which they are kept.
    expiries: BTreeSet<(u64, InvocationId)>,
}

/// A planned write of entries, and of the calls that it removes. The index is changed already: it
/// becomes as it was if the plan is dropped and not [kept](Self::keep).
#[derive(Debug)]
pub(super) struct Planned<'i> {
    index: &'i mut CallIndex,
    written: Vec<PlannedEntry>,
    removed: Vec<(InvocationId, CallEntry)>,
}

/// An entry that is written, and the one of the same call that it replaces.
#[derive(Debug)]
struct PlannedEntry {
    id: InvocationId,
    before: Option<CallEntry>,
}

impl CallIndex {
    /// Checks that one more call may wait.
    pub fn room_for(&self, entry: &CallEntry) -> Result<(), Full> {
        let function = &entry.function;
        let counts = &self.counts;
        let all = counts.all().waiting;
        let waiting = [
            (Of::Function, counts.of_function(function), MAX_WAITING, MAX_WAITING_BYTES),
            (
                Of::Tenant,
                counts.of_tenant(&function.tenant),
                MAX_CALLS.saturating_sub(all.calls) / SHARE_OF_ROOM,
                ByteSize(MAX_BYTES.bytes().saturating_sub(all.bytes) / SHARE_OF_ROOM as u64),
            ),
            (Of::All, counts.all(), MAX_CALLS, MAX_BYTES),
        ];
        for (of, sums, most, most_bytes) in waiting {
            let Sum { calls, bytes } = sums.waiting;
            if calls >= most {
                return Err(Full::Calls(of, most));
            }
            if bytes + entry.bytes > most_bytes.bytes() {
                return Err(Full::Bytes(of, most_bytes));
            }
        }
        Ok(())
    }

    /// Begins the plan of a write.
    pub fn plan(&mut self) -> Planned<'_> {
        Planned { index: self, written: Vec::new(), removed: Vec::new() }
    }

    pub fn add(&mut self, id: &InvocationId, entry: CallEntry) {
        self.counts.add(id, &entry);
        if let Some(until_ms) = entry.until_ms {
            self.expiries.insert((until_ms, id.clone()));
        }
        self.entries.insert(id.clone(), entry);
    }

    /// Returns the entry of a call.
    pub fn entry(&self, id: &InvocationId) -> Option<&CallEntry> {
        self.entries.get(id)
    }

    /// Returns the length of the records of all calls of a tenant.
    pub fn bytes_of(&self, tenant: &Tenant) -> u64 {
        self.counts.of_tenant(tenant).all().bytes
    }

    /// Returns the calls that have not ended, the oldest first.
    pub fn waiting(&self) -> Vec<(InvocationId, FunctionId)> {
        let waiting = self.entries.iter().filter(|(_, entry)| entry.until_ms.is_none());
        waiting.map(|(id, entry)| (id.clone(), entry.function.clone())).collect()
    }

    /// Returns ended calls, of all tenants or of one, with the lengths of their records: those
    /// whose answers are not to be kept any longer, or all of them.
    pub fn ended(&self, of: Option<&Tenant>, also_kept: bool) -> Vec<(InvocationId, u64)> {
        let is_own = |entry: &CallEntry| of.is_none_or(|of| entry.function.tenant == *of);
        let ended: Box<dyn Iterator<Item = &InvocationId>> = match (of, also_kept) {
            (Some(tenant), true) => Box::new(self.counts.ended_of(tenant)),
            (None, true) => Box::new(self.expiries.iter().map(|(_, id)| id)),
            (_, false) => {
                let kept = (now_ms().saturating_add(1), InvocationId::from(String::new()));
                Box::new(self.expiries.range(..kept).map(|(_, id)| id))
            }
        };
        let entries = ended.filter_map(|id| self.entries.get_key_value(id));
        let gone = entries.filter(|(_, entry)| is_own(entry));
        gone.map(|(id, entry)| (id.clone(), entry.bytes)).collect()
    }

    /// Forgets entries that were removed from the store.
    pub fn forget_all<'i>(&mut self, ids: impl IntoIterator<Item = &'i InvocationId>) {
        for id in ids {
            self.forget(id);
        }
    }

    fn forget(&mut self, id: &InvocationId) -> Option<CallEntry> {
        let entry = self.entries.remove(id)?;
        self.counts.remove(id, &entry);
        if let Some(until_ms) = entry.until_ms {
            self.expiries.remove(&(until_ms, id.clone()));
        }
        Some(entry)
    }
}

impl Planned<'_> {
    /// Adds an entry, or replaces the entry of the same call, and removes ended calls: those that are
    /// too old, and then as many as make room for it.
    pub fn write(&mut self, id: InvocationId, entry: CallEntry) {
        let before = self.index.forget(&id);
        self.written.push(PlannedEntry { id: id.clone(), before });
        self.make_room(&entry);
        self.index.add(&id, entry);
    }

    /// Returns the index with the plan.
    pub fn index(&self) -> &CallIndex {
        self.index
    }

    /// Whether a further call can be written. One can be always.
    pub fn takes(&self, id: &InvocationId) -> bool {
        let is_short = self.written.len() + self.removed.len() < MAX_TOGETHER;
        self.written.is_empty() || is_short && !self.has(id)
    }

    /// Returns the calls that are written, and their entries.
    pub fn written(&self) -> impl Iterator<Item = (&InvocationId, &CallEntry)> {
        self.written.iter().filter_map(|each| Some((&each.id, self.index.entry(&each.id)?)))
    }

    /// Returns the calls that are removed.
    pub fn removed(&self) -> impl Iterator<Item = &InvocationId> {
        self.removed.iter().map(|(id, _)| id)
    }

    /// Leaves the index as planned, once the write is in the store.
    pub fn keep(mut self) {
        self.written.clear();
        self.removed.clear();
    }

    fn has(&self, id: &InvocationId) -> bool {
        self.written.iter().any(|each| each.id == *id)
    }

    fn make_room(&mut self, new: &CallEntry) {
        let now = (now_ms(), InvocationId::from(String::new()));
        self.remove_while(|index| index.expiries.range(..&now).next().map(|(_, id)| id.clone()));
        self.remove_while(|index| {
            let ended = index.counts.of_function(&new.function).ended;
            let is_full =
                ended.calls >= MAX_ENDED || ended.bytes + new.bytes > MAX_ENDED_BYTES.bytes();
            let oldest = || index.counts.oldest_of(&new.function).cloned();
            (new.until_ms.is_some() && is_full).then(oldest).flatten()
        });
        self.remove_while(|index| {
            let is_full = index.counts.all().all().bytes + new.bytes > MAX_BYTES.bytes();
            is_full.then(|| index.counts.oldest_of_most(By::Bytes).cloned()).flatten()
        });
        self.remove_while(|index| {
            let is_full = index.entries.len() >= MAX_CALLS;
            is_full.then(|| index.counts.oldest_of_most(By::Calls).cloned()).flatten()
        });
    }

    /// Removes one call after the other, as long as there is one that is not written here and the write
    /// is not too large.
    fn remove_while(&mut self, next: impl Fn(&CallIndex) -> Option<InvocationId>) {
        while self.removed.len() < MAX_REMOVED
            && self.written.len() + self.removed.len() < MAX_TOGETHER
            && let Some(id) = next(self.index)
            && !self.has(&id)
            && let Some(entry) = self.index.forget(&id)
        {
            self.removed.push((id, entry));
        }
    }
}

impl Drop for Planned<'_> {
    fn drop(&mut self) {
        for PlannedEntry { id, .. } in &self.written {
            self.index.forget(id);
        }
        for (id, entry) in self.removed.drain(..) {
            self.index.add(&id, entry);
        }
        for PlannedEntry { id, before } in self.written.drain(..) {
            if let Some(entry) = before {
                self.index.add(&id, entry);
            }
        }
    }
}
