//! Bounds of calls that wait and of answers that are kept, for functions, tenants and all.

use super::*;

const LATER: u64 = u64::MAX;
const SHARE: usize = MAX_CALLS / 4;

fn name(text: &str) -> FunctionId {
    FunctionId { tenant: "t".parse().unwrap(), name: text.parse().unwrap() }
}

fn ended(function: &str, bytes: u64, until_ms: u64) -> CallEntry {
    CallEntry { function: name(function), bytes, until_ms: Some(until_ms) }
}

fn waiting(function: &str, bytes: u64) -> CallEntry {
    CallEntry { until_ms: None, ..ended(function, bytes, 0) }
}

/// An entry, as one of another tenant.
fn of(tenant: &str, entry: CallEntry) -> CallEntry {
    let function = FunctionId { tenant: tenant.parse().unwrap(), ..entry.function };
    CallEntry { function, ..entry }
}

fn add(index: &mut CallIndex, entry: CallEntry) -> InvocationId {
    let id = InvocationId::new();
    index.add(&id, entry);
    id
}

/// Adds one with the removals that make room for it.
fn write(index: &mut CallIndex, entry: CallEntry) -> Vec<InvocationId> {
    let mut planned = index.plan();
    planned.write(InvocationId::new(), entry);
    let removed = planned.removed().cloned().collect();
    planned.keep();
    removed
}

#[test]
fn a_function_loses_its_own_oldest_calls_and_none_of_other_functions() {
    let mut index = CallIndex::default();
    let other = add(&mut index, ended("other", 1, LATER));
    let first = add(&mut index, ended("f", 1, LATER));
    for _ in 1..MAX_ENDED {
        add(&mut index, ended("f", 1, LATER));
    }
    assert_eq!(write(&mut index, ended("f", 1, LATER)), [first]);
    assert_eq!(index.counts.of_function(&name("f")).ended.calls, MAX_ENDED);
    assert!(index.entries.contains_key(&other));
}

#[test]
fn a_tenant_loses_nothing_by_a_function_of_the_same_name() {
    let mut index = CallIndex::default();
    let kept = add(&mut index, of("other", ended("f", 1, LATER)));
    for _ in 0..MAX_ENDED {
        add(&mut index, ended("f", 1, LATER));
    }
    assert_eq!(write(&mut index, ended("f", 1, LATER)).len(), 1);
    assert!(index.entries.contains_key(&kept));
}

#[test]
fn bytes_are_bounded_and_one_that_is_too_long_is_kept_alone() {
    let mut index = CallIndex::default();
    let half = MAX_ENDED_BYTES.bytes() / 2;
    let first = add(&mut index, ended("f", half, LATER));
    assert!(write(&mut index, ended("f", half, LATER)).is_empty());
    assert_eq!(write(&mut index, ended("f", 1, LATER)), [first]);
    assert_eq!(write(&mut index, ended("f", half * 3, LATER)).len(), 2);
    assert_eq!(index.counts.all().all().bytes, half * 3);
}

#[test]
fn what_is_too_old_goes_with_the_next_write() {
    let mut index = CallIndex::default();
    let old = add(&mut index, ended("f", 1, 1));
    add(&mut index, ended("f", 1, LATER));
    assert_eq!(write(&mut index, waiting("f", 1)), [old]);
}

#[test]
fn all_functions_together_are_bounded() {
    let mut index = CallIndex::default();
    let each = MAX_ENDED_BYTES.bytes();
    let functions = MAX_BYTES.bytes() / each;
    let most = add(&mut index, ended("f0", each, LATER));
    for function in 1..functions {
        add(&mut index, ended(&format!("f{function}"), each - 1, LATER));
    }
    assert_eq!(write(&mut index, ended("new", functions, LATER)), [most]);
}

/// The bound is exceeded where an earlier version has written more.
#[test]
fn one_write_removes_some_calls_of_many_functions_and_the_next_ones_the_rest() {
    let mut index = CallIndex::default();
    let large = add(&mut index, ended("large", 1, LATER));
    for at in 1..MAX_CALLS + MAX_REMOVED + 50 {
        let function = if at < 10 { "large".into() } else { format!("f{}", at / 5) };
        add(&mut index, ended(&function, 1, LATER));
    }
    let removed = write(&mut index, waiting("new", 1));
    assert_eq!(removed[0], large, "of the function that has most");
    assert_eq!(removed.len(), MAX_REMOVED, "though no function has so many");
    assert_eq!(write(&mut index, waiting("new", 1)).len(), 50 + 2);
    assert_eq!(index.entries.len(), MAX_CALLS);
    assert_eq!(write(&mut index, waiting("new", 1)).len(), 1);
}

#[test]
fn the_tenant_that_has_most_calls_loses_the_oldest_of_its_longest_function() {
    let mut index = CallIndex::default();
    let other: Vec<_> =
        (0..MAX_ENDED).map(|_| add(&mut index, of("other", ended("f", 1, LATER)))).collect();
    let mut longest = Vec::new();
    for at in 0..SHARE {
        add(&mut index, waiting(&format!("w{}", at / MAX_WAITING), 1));
    }
    for at in 0..MAX_CALLS - MAX_ENDED - SHARE - 1 {
        let function = format!("f{}", at / 90);
        longest.push(add(&mut index, ended(&function, 1, LATER)));
    }
    // Others have 90 as well, so one more makes it the longest.
    let last = add(&mut index, ended("f0", 1, LATER));
    assert_eq!(write(&mut index, of("third", waiting("f", 1))), longest[..1]);
    for _ in 0..200 {
        let removed = write(&mut index, of("other", waiting("f", 1)));
        assert!(removed.iter().all(|id| !other.contains(id)), "each of a function of 90");
    }
    assert!(index.entries.contains_key(&last));
    // What waits counts, so a tenant does not push out what others have by calls that wait.
    let mut index = CallIndex::default();
    let own: Vec<_> =
        (0..2000).map(|at| add(&mut index, ended(&format!("f{}", at / 90), 1, LATER))).collect();
    for at in 0..SHARE {
        add(&mut index, waiting(&format!("w{}", at / MAX_WAITING), 1));
    }
    for at in 0..MAX_CALLS - SHARE - own.len() {
        let tenant = format!("other{}", at / 20_000);
        add(&mut index, of(&tenant, ended(&format!("f{}", at / MAX_ENDED), 1, LATER)));
    }
    let removed = write(&mut index, waiting("f", 1));
    assert!(removed.len() == 1 && own.contains(&removed[0]));
}

#[test]
fn the_tenant_that_has_most_bytes_loses_them_first() {
    let mut index = CallIndex::default();
    let each = MAX_ENDED_BYTES.bytes() / 8;
    let other = add(&mut index, of("other", ended("f", each * 8, LATER)));
    let own: Vec<_> =
        (0..56).map(|at| add(&mut index, ended(&format!("f{at}"), each, LATER))).collect();
    let removed = write(&mut index, of("other", waiting("f", each + 1)));
    assert!(removed.len() == 2 && removed.iter().all(|id| own.contains(id)));
    assert!(index.entries.contains_key(&other));
}

#[test]
fn what_waits_is_bounded_and_never_removed() {
    let mut index = CallIndex::default();
    for _ in 0..MAX_WAITING {
        index.room_for(&waiting("f", 1)).unwrap();
        add(&mut index, waiting("f", 1));
    }
    assert_eq!(index.room_for(&waiting("f", 1)), Err(Full::Calls(Of::Function, MAX_WAITING)));
    let long = waiting("g", MAX_WAITING_BYTES.bytes() + 1);
    assert_eq!(index.room_for(&long), Err(Full::Bytes(Of::Function, MAX_WAITING_BYTES)));
    assert!(write(&mut index, ended("f", MAX_BYTES.bytes(), LATER)).is_empty());
    assert_eq!(index.waiting().len(), MAX_WAITING);
}

#[test]
fn calls_of_tenants_that_wait_leave_room_for_those_of_others() {
    let mut index = CallIndex::default();
    let mut taken = Vec::new();
    for at in 0..8 {
        let tenant = format!("t{at}");
        let mut own = 0;
        let full = loop {
            let entry = of(&tenant, waiting(&format!("f{}", own / 5000), 1));
            if let Err(full) = index.room_for(&entry) {
                break full;
            }
            add(&mut index, entry);
            own += 1;
        };
        assert!(matches!(full, Full::Calls(Of::Tenant, share) if share <= own), "{full:?}");
        taken.push(own);
    }
    assert_eq!(taken[..3], [25_000, 18_750, 14_062]);
    let left = MAX_CALLS - taken.iter().sum::<usize>();
    assert!(left > 10_000, "what eight tenants cannot take: {left}");
    index.room_for(&of("new", waiting("f", 1))).unwrap();
}

#[test]
fn events_of_a_tenant_that_wait_leave_room_for_those_of_others() {
    let mut index = CallIndex::default();
    for function in ["f", "g"] {
        index.room_for(&waiting(function, 1)).unwrap();
        add(&mut index, waiting(function, MAX_WAITING_BYTES.bytes()));
    }
    let share = ByteSize(MAX_BYTES.bytes() / 4);
    assert_eq!(index.room_for(&waiting("h", 1)), Err(Full::Bytes(Of::Tenant, share)));
    index.room_for(&of("other", waiting("h", MAX_WAITING_BYTES.bytes()))).unwrap();
}

#[test]
fn a_write_that_fails_changes_nothing() {
    let mut index = CallIndex::default();
    let call = add(&mut index, waiting("f", 1));
    for until_ms in [1, LATER] {
        add(&mut index, ended("f", 1, until_ms));
    }
    let before = index.clone();
    let more = InvocationId::new();
    let plan = |index: &mut CallIndex, keeps: bool| {
        let mut planned = index.plan();
        planned.write(call.clone(), ended("f", MAX_ENDED_BYTES.bytes(), LATER));
        assert_eq!(planned.removed().count(), 2);
        planned.write(more.clone(), waiting("f", 7));
        let written: Vec<_> = planned.written().map(|(id, _)| id.clone()).collect();
        assert_eq!(written, [call.clone(), more.clone()]);
        if keeps {
            planned.keep();
        }
    };
    plan(&mut index, false);
    assert_eq!(index, before);
    plan(&mut index, true);
    assert_eq!(index.entries.keys().collect::<Vec<_>>(), [&call, &more]);
    index.forget_all([&call, &more]);
    assert_eq!(index, CallIndex::default(), "no sums are left");
}

#[test]
fn calls_that_are_written_together_do_not_remove_each_other_and_are_no_more_than_etcd_takes() {
    let mut index = CallIndex::default();
    let mut planned = index.plan();
    let long = || ended("f", MAX_ENDED_BYTES.bytes(), LATER);
    let mut id = InvocationId::new();
    while planned.takes(&id) {
        planned.write(id.clone(), long());
        assert!(!planned.takes(&id), "it is written already");
        id = InvocationId::new();
    }
    assert_eq!((planned.written().count(), planned.removed().count()), (MAX_TOGETHER, 0));
    planned.keep();
    assert_eq!(index.entries.len(), MAX_TOGETHER);
    // The next ones remove what was too much.
    assert_eq!(write(&mut index, long()).len(), MAX_REMOVED);
    assert_eq!(write(&mut index, long()).len(), 3);
}
