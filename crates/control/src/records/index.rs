//! The index of all asynchronous calls: their functions, their lengths, and until when their
//! answers are kept.
//!
//! Invariant: it equals the entries in the store. A removal is first planned, then written, then
//! applied here, so that a failed write changes nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};
use snowmelt_types::{ByteSize, InvocationId, Tenant};

use super::FunctionId;
use crate::now_ms;

/// The most calls of one function that may wait.
const MOST_WAITING: usize = 10_000;
/// The most bytes of their events together.
const MOST_WAITING_BYTES: ByteSize = ByteSize::mib(256);
/// The most answers of one function that are kept.
const MOST_ENDED: usize = 10_000;
/// The most bytes of these together. A longer answer is kept alone.
const MOST_ENDED_BYTES: ByteSize = ByteSize::mib(256);
/// The most bytes of the calls of all functions together.
const MOST_BYTES: ByteSize = ByteSize::mib(2048);
/// The most calls of all functions together: each takes about a kilobyte of this index.
const MOST_CALLS: usize = 100_000;

/// The index entry of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// The function that is called.
    pub function: FunctionId,
    /// The length of its record.
    pub bytes: u64,
    /// Until when its answer is kept, in milliseconds since 1970; absent while it has not ended.
    pub until_ms: Option<u64>,
}

/// Why a call is not accepted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Full {
    Calls(usize),
    Bytes(ByteSize),
    All(ByteSize),
    AllCalls(usize),
}

/// The entries, and sums over them.
#[derive(Debug, Default)]
pub(super) struct Index {
    // Identifiers sort by the time of acceptance, so the first is the oldest.
    entries: BTreeMap<InvocationId, Entry>,
    functions: HashMap<FunctionId, OfFunction>,
    // Ended ones by the time until which they are kept.
    expiries: BTreeSet<(u64, InvocationId)>,
    bytes: u64,
}

#[derive(Debug, Default)]
struct OfFunction {
    waiting: usize,
    waiting_bytes: u64,
    ended: BTreeSet<InvocationId>,
    ended_bytes: u64,
}

impl Entry {
    /// The entry of a call that has not ended.
    pub fn waiting(function: FunctionId, bytes: usize) -> Self {
        Self { function, bytes: bytes as u64, until_ms: None }
    }
}

impl Index {
    /// Whether one more call may wait.
    pub fn room_for(&self, entry: &Entry) -> Result<(), Full> {
        let none = OfFunction::default();
        let own = self.functions.get(&entry.function).unwrap_or(&none);
        let all_waiting: u64 = self.functions.values().map(|own| own.waiting_bytes).sum();
        if own.waiting >= MOST_WAITING {
            return Err(Full::Calls(MOST_WAITING));
        }
        if own.waiting_bytes + entry.bytes > MOST_WAITING_BYTES.bytes() {
            return Err(Full::Bytes(MOST_WAITING_BYTES));
        }
        if self.functions.values().map(|own| own.waiting).sum::<usize>() >= MOST_CALLS {
            return Err(Full::AllCalls(MOST_CALLS));
        }
        match all_waiting + entry.bytes > MOST_BYTES.bytes() {
            true => Err(Full::All(MOST_BYTES)),
            false => Ok(()),
        }
    }

    /// The ended calls that are removed to make room for one with so many bytes: an ended call of a
    /// function, or one that waits.
    pub fn removed_for(&self, ended: Option<&FunctionId>, bytes: u64) -> Vec<InvocationId> {
        let mut removed = BTreeSet::new();
        let expired = self.expiries.range(..(now_ms(), InvocationId::from(String::new())));
        removed.extend(expired.map(|(_, id)| id.clone()));
        if let Some(own) = ended.and_then(|function| self.functions.get(function)) {
            self.trim(own, bytes, &mut removed);
        }
        self.trim_all(bytes, &mut removed);
        // A call that has ended is here already, one that waits is one more.
        self.trim_calls(MOST_CALLS - usize::from(ended.is_none()), &mut removed);
        removed.into_iter().collect()
    }

    /// Adds or replaces an entry, and forgets others.
    pub fn apply(&mut self, id: &InvocationId, entry: Entry, removed: &[InvocationId]) {
        removed.iter().for_each(|id| self.forget(id));
        self.forget(id);
        self.add(id, entry);
    }

    pub fn add(&mut self, id: &InvocationId, entry: Entry) {
        let own = self.functions.entry(entry.function.clone()).or_default();
        self.bytes += entry.bytes;
        match entry.until_ms {
            None => {
                own.waiting += 1;
                own.waiting_bytes += entry.bytes;
            }
            Some(until_ms) => {
                own.ended.insert(id.clone());
                own.ended_bytes += entry.bytes;
                self.expiries.insert((until_ms, id.clone()));
            }
        }
        self.entries.insert(id.clone(), entry);
    }

    /// The entry of a call.
    #[cfg(test)]
    pub fn entry(&self, id: &InvocationId) -> Option<&Entry> {
        self.entries.get(id)
    }

    /// Calls that have not ended, the oldest first.
    pub fn waiting(&self) -> Vec<(InvocationId, FunctionId)> {
        let waiting = self.entries.iter().filter(|(_, entry)| entry.until_ms.is_none());
        waiting.map(|(id, entry)| (id.clone(), entry.function.clone())).collect()
    }

    /// Ended calls, of all tenants or of one, with the lengths of their records: those whose answers
    /// are not to be kept any longer, or all of them.
    pub fn ended(&self, of: Option<&Tenant>, also_kept: bool) -> Vec<(InvocationId, u64)> {
        let now = now_ms();
        let may_go = |entry: &Entry| entry.until_ms.is_some_and(|until| also_kept || until <= now);
        let is_own = |entry: &Entry| of.is_none_or(|of| entry.function.tenant == *of);
        let gone = self.entries.iter().filter(|(_, entry)| may_go(entry) && is_own(entry));
        gone.map(|(id, entry)| (id.clone(), entry.bytes)).collect()
    }

    /// Forgets entries that were removed from the store.
    pub fn forget_all<'i>(&mut self, ids: impl IntoIterator<Item = &'i InvocationId>) {
        ids.into_iter().for_each(|id| self.forget(id));
    }

    fn forget(&mut self, id: &InvocationId) {
        let Some(entry) = self.entries.remove(id) else { return };
        self.bytes -= entry.bytes;
        let Some(own) = self.functions.get_mut(&entry.function) else { return };
        match entry.until_ms {
            None => {
                own.waiting -= 1;
                own.waiting_bytes -= entry.bytes;
            }
            Some(until_ms) => {
                own.ended.remove(id);
                own.ended_bytes -= entry.bytes;
                self.expiries.remove(&(until_ms, id.clone()));
            }
        }
        if own.waiting == 0 && own.ended.is_empty() {
            self.functions.remove(&entry.function);
        }
    }

    /// The oldest of a function, until one more has room.
    fn trim(&self, own: &OfFunction, bytes: u64, removed: &mut BTreeSet<InvocationId>) {
        let (mut count, mut held) = (own.ended.len(), own.ended_bytes);
        for id in removed.iter().filter(|id| own.ended.contains(*id)) {
            (count, held) = (count - 1, held - self.bytes_of(id));
        }
        for id in &own.ended {
            if count < MOST_ENDED && held + bytes <= MOST_ENDED_BYTES.bytes() {
                return;
            }
            if removed.insert(id.clone()) {
                (count, held) = (count - 1, held - self.bytes_of(id));
            }
        }
    }

    /// The oldest of the function that has most, until one more has room.
    fn trim_all(&self, bytes: u64, removed: &mut BTreeSet<InvocationId>) {
        let gone: u64 = removed.iter().map(|id| self.bytes_of(id)).sum();
        let mut held = self.bytes - gone;
        while held + bytes > MOST_BYTES.bytes() {
            let left = |own: &OfFunction, removed: &BTreeSet<InvocationId>| -> u64 {
                let left = own.ended.iter().filter(|id| !removed.contains(*id));
                left.map(|id| self.bytes_of(id)).sum()
            };
            let Some(most) = self.functions.values().max_by_key(|own| left(own, removed)) else {
                return;
            };
            let Some(oldest) = most.ended.iter().find(|id| !removed.contains(*id)) else { return };
            held -= self.bytes_of(oldest);
            removed.insert(oldest.clone());
        }
    }

    /// The oldest of the function that has most results, until so many calls are left.
    fn trim_calls(&self, most: usize, removed: &mut BTreeSet<InvocationId>) {
        while self.entries.len() - removed.len() > most {
            let longest = self.functions.values().max_by_key(|own| own.ended.len());
            let oldest = longest.and_then(|own| own.ended.iter().find(|id| !removed.contains(*id)));
            let Some(oldest) = oldest else { return };
            removed.insert(oldest.clone());
        }
    }

    fn bytes_of(&self, id: &InvocationId) -> u64 {
        self.entries.get(id).map_or(0, |entry| entry.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: u64 = u64::MAX;

    fn name(text: &str) -> FunctionId {
        FunctionId { tenant: "t".parse().unwrap(), name: text.parse().unwrap() }
    }

    fn ended(function: &str, bytes: u64, until_ms: u64) -> Entry {
        Entry { function: name(function), bytes, until_ms: Some(until_ms) }
    }

    fn add(index: &mut Index, entry: Entry) -> InvocationId {
        let id = InvocationId::new();
        index.add(&id, entry);
        id
    }

    fn remove(index: &mut Index, function: &str, bytes: u64) -> Vec<InvocationId> {
        let removed = index.removed_for(Some(&name(function)), bytes);
        let id = InvocationId::new();
        index.apply(&id, ended(function, bytes, LATER), &removed);
        removed
    }

    #[test]
    fn a_function_loses_its_own_oldest_calls_and_none_of_other_functions() {
        let mut index = Index::default();
        let other = add(&mut index, ended("other", 1, LATER));
        let first = add(&mut index, ended("f", 1, LATER));
        for _ in 1..MOST_ENDED {
            add(&mut index, ended("f", 1, LATER));
        }
        assert_eq!(remove(&mut index, "f", 1), [first]);
        assert_eq!(index.functions[&name("f")].ended.len(), MOST_ENDED);
        assert!(index.entries.contains_key(&other));
    }

    #[test]
    fn a_tenant_loses_nothing_by_a_function_of_the_same_name() {
        let mut index = Index::default();
        let theirs = FunctionId { tenant: "other".parse().unwrap(), ..name("f") };
        let kept = add(&mut index, Entry { function: theirs, ..ended("f", 1, LATER) });
        for _ in 0..MOST_ENDED {
            add(&mut index, ended("f", 1, LATER));
        }
        assert_eq!(remove(&mut index, "f", 1).len(), 1);
        assert!(index.entries.contains_key(&kept));
    }

    #[test]
    fn bytes_are_bounded_and_one_that_is_too_long_is_kept_alone() {
        let mut index = Index::default();
        let half = MOST_ENDED_BYTES.bytes() / 2;
        let first = add(&mut index, ended("f", half, LATER));
        assert!(remove(&mut index, "f", half).is_empty());
        assert_eq!(remove(&mut index, "f", 1), [first]);
        assert_eq!(remove(&mut index, "f", half * 3).len(), 2);
        assert_eq!(index.bytes, half * 3);
    }

    #[test]
    fn what_is_too_old_goes_with_the_next_write() {
        let mut index = Index::default();
        let old = add(&mut index, ended("f", 1, 1));
        add(&mut index, ended("f", 1, LATER));
        assert_eq!(index.removed_for(None, 1), [old]);
    }

    #[test]
    fn all_functions_together_are_bounded() {
        let mut index = Index::default();
        let each = MOST_ENDED_BYTES.bytes();
        let functions = MOST_BYTES.bytes() / each;
        let most = add(&mut index, ended("f0", each, LATER));
        for function in 1..functions {
            add(&mut index, ended(&format!("f{function}"), each - 1, LATER));
        }
        assert_eq!(remove(&mut index, "new", functions), [most]);
    }

    #[test]
    fn calls_of_many_functions_are_bounded_by_their_number() {
        let mut index = Index::default();
        let oldest = add(&mut index, ended("large", 1, LATER));
        for at in 1..MOST_CALLS {
            let function = if at < 10 { "large".into() } else { format!("f{}", at / 5) };
            add(&mut index, ended(&function, 1, LATER));
        }
        assert_eq!(index.removed_for(None, 1), [oldest], "of the function that has most");
        let mut waiting = Index::default();
        let entry = |at| Entry { until_ms: None, ..ended(&format!("f{}", at / 5000), 1, 0) };
        for at in 0..MOST_CALLS {
            add(&mut waiting, entry(at));
        }
        assert_eq!(waiting.room_for(&entry(MOST_CALLS)), Err(Full::AllCalls(MOST_CALLS)));
        assert!(waiting.removed_for(None, 1).is_empty(), "what waits is never removed");
    }

    #[test]
    fn what_waits_is_bounded_and_never_removed() {
        let mut index = Index::default();
        let waiting = |bytes| Entry { until_ms: None, ..ended("f", bytes, 0) };
        for _ in 0..MOST_WAITING {
            index.room_for(&waiting(1)).unwrap();
            add(&mut index, waiting(1));
        }
        assert_eq!(index.room_for(&waiting(1)), Err(Full::Calls(MOST_WAITING)));
        let other = Entry { function: name("g"), ..waiting(MOST_WAITING_BYTES.bytes() + 1) };
        assert_eq!(index.room_for(&other), Err(Full::Bytes(MOST_WAITING_BYTES)));
        assert!(index.removed_for(Some(&name("f")), MOST_BYTES.bytes()).is_empty());
        assert_eq!(index.waiting().len(), MOST_WAITING);
    }
}
