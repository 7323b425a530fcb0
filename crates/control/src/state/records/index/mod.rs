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

/// A planned write of an entry, and of the calls that it removes. The index lacks these calls
/// meanwhile. They come back if the plan is dropped and not [kept](Self::keep).
#[derive(Debug)]
pub(super) struct Planned<'i> {
    index: &'i mut CallIndex,
    id: InvocationId,
    entry: CallEntry,
    /// The entry of the same call that the write replaces.
    before: Option<CallEntry>,
    removed: Vec<(InvocationId, CallEntry)>,
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

    /// Plans to add an entry, or to replace the entry of the same call, and to remove ended calls:
    /// those that are too old, and then as many as make room for it.
    pub fn plan(&mut self, id: InvocationId, entry: CallEntry) -> Planned<'_> {
        let before = self.forget(&id);
        let mut planned = Planned { index: self, id, entry, before, removed: Vec::new() };
        planned.make_room();
        planned
    }

    pub fn add(&mut self, id: &InvocationId, entry: CallEntry) {
        self.counts.add(id, &entry);
        if let Some(until_ms) = entry.until_ms {
            self.expiries.insert((until_ms, id.clone()));
        }
        self.entries.insert(id.clone(), entry);
    }

    /// Returns the entry of a call.
    #[cfg(test)]
    pub fn entry(&self, id: &InvocationId) -> Option<&CallEntry> {
        self.entries.get(id)
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
    /// Returns the identifier of the call that is written.
    pub fn id(&self) -> &InvocationId {
        &self.id
    }

    /// Returns the new entry of the call.
    pub fn entry(&self) -> &CallEntry {
        &self.entry
    }

    /// Returns the calls that are removed.
    pub fn removed(&self) -> impl Iterator<Item = &InvocationId> {
        self.removed.iter().map(|(id, _)| id)
    }

    /// Makes the index equal to the store, once the write is in the store.
    pub fn keep(mut self) {
        self.removed.clear();
        self.before = Some(self.entry.clone());
    }

    fn make_room(&mut self) {
        let now = (now_ms(), InvocationId::from(String::new()));
        self.remove_while(|index, _| index.expiries.range(..&now).next().map(|(_, id)| id.clone()));
        self.remove_while(|index, new| {
            let ended = index.counts.of_function(&new.function).ended;
            let is_full =
                ended.calls >= MAX_ENDED || ended.bytes + new.bytes > MAX_ENDED_BYTES.bytes();
            let oldest = || index.counts.oldest_of(&new.function).cloned();
            (new.until_ms.is_some() && is_full).then(oldest).flatten()
        });
        self.remove_while(|index, new| {
            let is_full = index.counts.all().all().bytes + new.bytes > MAX_BYTES.bytes();
            is_full.then(|| index.counts.oldest_of_most(By::Bytes).cloned()).flatten()
        });
        self.remove_while(|index, _| {
            let is_full = index.entries.len() >= MAX_CALLS;
            is_full.then(|| index.counts.oldest_of_most(By::Calls).cloned()).flatten()
        });
    }

    /// Removes one call after the other, as long as there is one and the write is not too large.
    fn remove_while(&mut self, next: impl Fn(&CallIndex, &CallEntry) -> Option<InvocationId>) {
        while self.removed.len() < MAX_REMOVED
            && let Some(id) = next(self.index, &self.entry)
            && let Some(entry) = self.index.forget(&id)
        {
            self.removed.push((id, entry));
        }
    }
}

impl Drop for Planned<'_> {
    fn drop(&mut self) {
        for (id, entry) in self.removed.drain(..) {
            self.index.add(&id, entry);
        }
        if let Some(entry) = self.before.take() {
            self.index.add(&self.id, entry);
        }
    }
}
