//! Tests of the account as a whole.

mod model;

use std::time::{Duration, Instant};

use futures::FutureExt;
use snowmelt_types::{ByteSize, CpuMillis, Tenant};

use super::*;

const SOON: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(600);

fn capacity(mib: u64, instances: u32) -> Capacity {
    Capacity { memory: ByteSize::mib(mib), instances, cpu: None }
}

fn tenant(name: &str) -> Tenant {
    name.parse().unwrap()
}

fn mib(memory: u64) -> Amount {
    Amount::one(ByteSize::mib(memory), CpuMillis(1000))
}

fn ask(name: &str, memory: u64) -> RoomRequest {
    RoomRequest { tenant: tenant(name), use_: Use::Function, amount: mib(memory) }
}

fn reserved(ledger: &Ledger) -> (u64, u64) {
    let reserved = ledger.figures().reserved;
    (reserved.memory.bytes() >> 20, reserved.instances)
}

#[test]
fn what_is_dropped_is_given_back() {
    let ledger = Ledger::new(capacity(100, 10));
    let one = ledger.try_reserve(&ask("a", 60));
    let other = ledger.try_reserve(&ask("b", 60));
    assert!(one.is_ok());
    let refused = other.unwrap_err();
    assert_eq!(refused.taken.len(), 1);
    assert_eq!(reserved(&ledger), (60, 1));
    drop(one);
    assert_eq!(reserved(&ledger), (0, 0));
    assert!(ledger.figures().uses.is_empty());
    drop(ledger.try_reserve(&ask("b", 100)).unwrap());
}

#[test]
fn instances_are_a_bound_and_processor_is_one_only_where_it_is_given() {
    let ledger = Ledger::new(capacity(100, 2));
    let held: Vec<_> = (0..2).map(|_| ledger.try_reserve(&ask("a", 1)).unwrap()).collect();
    assert!(ledger.try_reserve(&ask("a", 1)).is_err());
    assert_eq!(ledger.figures().reserved.cpu_millis, 2000);
    drop(held);
    let bounded = Capacity { cpu: Some(CpuMillis(1500)), ..capacity(100, 2) };
    let ledger = Ledger::new(bounded);
    let _held = ledger.try_reserve(&ask("a", 1)).unwrap();
    assert!(ledger.try_reserve(&ask("a", 1)).is_err());
}

#[test]
fn as_many_are_reserved_as_there_is_room_for() {
    let ledger = Ledger::new(capacity(100, 10));
    let held = ledger.try_reserve_up_to(&ask("a", 30), 8);
    assert_eq!((held.len(), reserved(&ledger)), (3, (90, 3)));
    assert!(ledger.try_reserve_up_to(&ask("b", 30), 8).is_empty());
    assert_eq!(ledger.try_reserve_up_to(&ask("b", 1), 2).len(), 2);
    drop(held);
    assert_eq!(reserved(&ledger), (0, 0));
}

/// Before there were two lines, a call waited for all queries that its tenant had asked for.
#[test]
fn calls_of_a_tenant_do_not_wait_behind_all_of_its_queries() {
    let ledger = Ledger::new(capacity(100, 10));
    let driver = RoomRequest { use_: Use::Driver, ..ask("a", 50) };
    let mut running: Vec<_> = (0..2).map(|_| ledger.try_reserve(&driver).unwrap()).collect();
    let mut queries: Vec<_> = (0..500).map(|_| ledger.wait(driver.clone()).unwrap()).collect();
    let mut calls: Vec<_> = (0..2).map(|_| ledger.wait(ask("a", 50)).unwrap()).collect();
    running.pop();
    let call = (&mut calls[0]).now_or_never();
    assert!(call.is_some(), "the first query that ends makes room for a call");
    assert!((&mut queries[0]).now_or_never().is_none());
    // Queries have nothing now, and calls have half.
    running.pop();
    assert!((&mut calls[1]).now_or_never().is_none());
    assert!((&mut queries[0]).now_or_never().is_some(), "queries go on as well");
    drop(call);
    assert!((&mut calls[1]).now_or_never().is_some());
    drop((calls, queries));
    assert_eq!(ledger.figures().waiting, 0);
}

#[test]
fn a_gang_is_reserved_at_once_and_each_part_is_given_back_by_itself() {
    let ledger = Ledger::new(capacity(100, 10));
    let gang = RoomRequest { amount: mib(25).times(4), ..ask("a", 0) };
    let mut parts = ledger.try_reserve(&gang).unwrap().split(4);
    assert!(parts.iter().all(|part| part.amount() == mib(25)));
    assert_eq!(reserved(&ledger), (100, 4));
    parts.pop();
    assert_eq!(reserved(&ledger), (75, 3));
    drop(parts);
    // The first part has the remainder, and nothing is lost.
    let odd = RoomRequest { amount: Amount { instances: 3, ..mib(10) }, ..ask("a", 0) };
    let parts = ledger.try_reserve(&odd).unwrap().split(3);
    assert_eq!(reserved(&ledger), (10, 3));
    drop(parts);
    assert!(ledger.try_reserve(&odd).unwrap().split(0).is_empty());
    assert_eq!(reserved(&ledger), (0, 0));
}

#[test]
fn a_part_can_be_for_another_use() {
    let ledger = Ledger::new(capacity(100, 10));
    let whole = RoomRequest { use_: Use::Driver, amount: mib(30) + mib(20), ..ask("a", 0) };
    let mut whole = ledger.try_reserve(&whole).unwrap();
    let part = whole.take(mib(20), Use::Task);
    assert_eq!((whole.amount(), part.amount()), (mib(30), mib(20)));
    assert_eq!(ledger.figures().uses, [(Use::Driver, mib(30)), (Use::Task, mib(20))]);
    drop(whole);
    assert_eq!(ledger.figures().uses, [(Use::Task, mib(20))]);
    // No more than there is.
    let mut part = part;
    let all = part.take(mib(50), Use::Task);
    assert_eq!((all.amount(), part.amount()), (mib(20), Amount::default()));
    drop((all, part));
    assert_eq!(reserved(&ledger), (0, 0));
}

#[tokio::test]
async fn what_was_measured_is_recorded_even_above_the_capacity() {
    let ledger = Ledger::new(capacity(100, 10));
    let mut zygote = ledger.try_reserve(&ask("a", 10)).unwrap();
    zygote.resize(mib(150));
    assert_eq!(reserved(&ledger), (150, 1));
    assert!(ledger.try_reserve(&ask("a", 1)).is_err());
    let waiting = ledger.wait(ask("b", 60)).unwrap();
    zygote.resize(mib(40));
    let granted = waiting.until(Instant::now() + LONG).await.unwrap();
    assert_eq!(reserved(&ledger), (100, 2));
    drop((zygote, granted));
    assert_eq!(reserved(&ledger), (0, 0));
}

#[tokio::test]
async fn a_request_above_the_capacity_is_refused_at_once() {
    let ledger = Ledger::new(capacity(100, 10));
    let refused = ledger.reserve(ask("a", 101), Instant::now() + LONG).await.unwrap_err();
    assert!(refused.is_too_large());
    let text = refused.to_string();
    assert_eq!(
        text,
        "an instance of a function needs 101 MiB and 1 sandbox; this host has 100 MiB for 10 \
         sandboxes"
    );
    assert_eq!(ledger.figures().refused, 1);
}

#[tokio::test]
async fn a_request_is_refused_at_its_deadline_with_what_is_taken() {
    let ledger = Ledger::new(capacity(100, 10));
    let _own = ledger.try_reserve(&ask("a", 30)).unwrap();
    let _other = ledger.try_reserve(&ask("b", 40)).unwrap();
    let _third = ledger.try_reserve(&RoomRequest { use_: Use::Burst, ..ask("c", 20) }).unwrap();
    let refused = ledger.reserve(ask("a", 20), Instant::now() + SOON).await.unwrap_err();
    assert!(!refused.is_too_large());
    let order: Vec<_> = refused.taken.iter().map(|taken| taken.tenant.as_str()).collect();
    assert_eq!(order, ["b", "a", "c"], "the largest first");
    assert_eq!(
        refused.to_string(),
        "an instance of a function needs 20 MiB and 1 sandbox; this host has 100 MiB for 10 \
         sandboxes: functions of `a` have 30 MiB and 1 sandbox, others have 60 MiB and 2 sandboxes"
    );
    let figures = ledger.figures();
    assert_eq!((figures.waiting, figures.refused, figures.waited), (0, 1, 0));
}

#[tokio::test]
async fn who_waits_gets_what_is_given_back() {
    let ledger = Ledger::new(capacity(100, 10));
    let held = ledger.try_reserve(&ask("a", 80)).unwrap();
    let mut waiting = Box::pin(ledger.reserve(ask("b", 50), Instant::now() + LONG));
    assert!((&mut waiting).now_or_never().is_none());
    assert!(ledger.is_wanted());
    drop(held);
    let granted = waiting.await.unwrap();
    assert_eq!((reserved(&ledger), ledger.is_wanted()), ((50, 1), false));
    assert_eq!(ledger.figures().waited, 1);
    drop(granted);
}

#[test]
fn nobody_overtakes_a_large_request() {
    let ledger = Ledger::new(capacity(100, 10));
    let held = ledger.try_reserve(&ask("a", 60)).unwrap();
    let mut large = ledger.wait(ask("b", 90)).unwrap();
    assert!(ledger.try_reserve(&ask("c", 1)).is_err(), "there is room, but somebody waits");
    let mut small = ledger.wait(ask("c", 10)).unwrap();
    assert!((&mut small).now_or_never().is_none());
    drop(held);
    let large = (&mut large).now_or_never().unwrap().unwrap();
    let small = (&mut small).now_or_never().unwrap().unwrap();
    assert_eq!(reserved(&ledger), (100, 2));
    drop((large, small));
}

#[test]
fn a_request_that_is_dropped_leaves_the_queue_and_lets_the_next_one_go() {
    let ledger = Ledger::new(capacity(100, 10));
    let _held = ledger.try_reserve(&ask("a", 60)).unwrap();
    let large = ledger.wait(ask("b", 90)).unwrap();
    let mut small = ledger.wait(ask("c", 10)).unwrap();
    assert!((&mut small).now_or_never().is_none());
    drop(large);
    let small = (&mut small).now_or_never().unwrap().unwrap();
    assert_eq!((reserved(&ledger), ledger.is_wanted()), ((70, 2), false));
    drop(small);
    // One that was granted and never looked at is given back with its request.
    let granted = ledger.wait(ask("b", 40)).unwrap();
    assert_eq!(reserved(&ledger), (100, 2));
    drop(granted);
    assert_eq!(reserved(&ledger), (60, 1));
}

#[test]
fn a_tenant_with_one_request_does_not_wait_for_a_thousand_of_another() {
    let ledger = Ledger::new(capacity(100, 1000));
    let mut held: Vec<_> = (0..10).map(|_| ledger.try_reserve(&ask("many", 10)).unwrap()).collect();
    let mut many: Vec<_> = (0..1000).map(|_| ledger.wait(ask("many", 10)).unwrap()).collect();
    let mut one = ledger.wait(ask("one", 10)).unwrap();
    held.pop();
    let granted = (&mut one).now_or_never();
    assert!(granted.is_some(), "the first that was given back is for the tenant that has nothing");
    assert!(many.iter_mut().all(|waiting| waiting.now_or_never().is_none()));
    held.pop();
    let first = many.iter_mut().position(|waiting| waiting.now_or_never().is_some());
    assert_eq!(first, Some(0), "those of one tenant go in their order");
}

#[test]
fn who_can_do_without_gets_what_nobody_else_asks_for() {
    let ledger = Ledger::new(capacity(100, 10));
    let held = ledger.try_reserve(&ask("a", 80)).unwrap();
    let mut spare = ledger.wait_for_spare(ask("b", 50)).unwrap();
    assert!(!ledger.is_wanted(), "nothing is ended for it");
    let small = ledger.try_reserve(&ask("c", 10)).unwrap();
    let mut needed = ledger.wait(ask("a", 60)).unwrap();
    assert!(ledger.is_wanted());
    assert_eq!(ledger.figures().waiting, 2);
    drop(held);
    let needed = (&mut needed).now_or_never().unwrap().unwrap();
    assert!((&mut spare).now_or_never().is_none());
    drop(needed);
    let spare = (&mut spare).now_or_never().unwrap().unwrap();
    assert_eq!((reserved(&ledger), ledger.figures().waiting), ((60, 2), 0));
    drop((spare, small));
}

#[test]
fn tenants_that_wait_for_all_share_it_evenly() {
    let ledger = Ledger::new(capacity(100, 1000));
    let mut turns: Vec<_> = (0..20).map(|_| ledger.try_reserve(&ask("a", 5)).unwrap()).collect();
    let waiting =
        |name: &str| -> Vec<_> { (0..50).map(|_| ledger.wait(ask(name, 5)).unwrap()).collect() };
    let mut a = waiting("a");
    let mut b = waiting("b");
    turns.drain(..10);
    let granted = |all: &mut Vec<WaitingRequest>| {
        all.iter_mut().filter_map(|one| one.now_or_never()).map(Result::unwrap).collect()
    };
    let of_a: Vec<Reservation> = granted(&mut a);
    let of_b: Vec<Reservation> = granted(&mut b);
    assert_eq!((of_a.len() + turns.len(), of_b.len()), (10, 10));
}
