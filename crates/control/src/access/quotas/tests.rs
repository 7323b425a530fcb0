use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use snowmelt_api::QuotaKind::{self, Calls, CallsPerSecond, Cores, Functions, Instances};
use snowmelt_api::QuotaKind::{Disk, GibSecondsPerDay, Memory, Queries, RequestMemory};
use snowmelt_tasks::{SandboxSum, TaskQuota};
use snowmelt_types::{ByteSize, Code};

use super::*;

const GIB: u64 = 1 << 30;

fn quotas(limits: &[(QuotaKind, u64)]) -> Quotas {
    Quotas::new(limits.iter().copied().collect())
}

fn acme() -> Tenant {
    "acme".parse().unwrap()
}

fn room(who: &str, instances: u64, shared_by: u64) -> RoomHolder {
    let amount = RoomAmount { instances, memory: instances * GIB, cpu_millis: instances * 500 };
    RoomHolder { who: Arc::from(who), amount, shared_by }
}

fn used(quotas: &Quotas, kind: QuotaKind) -> u64 {
    let summary = quotas.summary(&acme());
    summary.quotas.iter().find(|quota| quota.kind == kind).unwrap().used
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_requests_for_the_last_place_exactly_one_passes() {
    let quotas = quotas(&[(Calls, 3), (Instances, 3)]);
    let _two = quotas.calls(&acme(), "f", 2).unwrap();
    let _rooms = [
        quotas.room(&acme(), room("function f", 1, 1)),
        quotas.room(&acme(), room("function f", 1, 1)),
    ];
    for _ in 0..20 {
        let passed = Arc::new(AtomicUsize::new(0));
        let barrier = Arc::new(tokio::sync::Barrier::new(200));
        let asking: Vec<_> = (0..200)
            .map(|_| {
                let quotas = quotas.clone();
                let passed = Arc::clone(&passed);
                let barrier = Arc::clone(&barrier);
                tokio::spawn(async move {
                    barrier.wait().await;
                    let call = quotas.calls(&acme(), "f", 1);
                    let has_room = quotas.room(&acme(), room("function f", 1, 1));
                    passed.fetch_add(usize::from(call.is_ok()), Ordering::SeqCst);
                    passed.fetch_add(1000 * usize::from(has_room.is_ok()), Ordering::SeqCst);
                    // Nobody gives back before all have asked.
                    barrier.wait().await;
                })
            })
            .collect();
        for one in asking {
            one.await.unwrap();
        }
        assert_eq!(passed.load(Ordering::SeqCst), 1001);
        assert_eq!((used(&quotas, Calls), used(&quotas, Instances)), (2, 2), "nothing leaks");
    }
}

#[test]
fn a_refusal_says_what_uses_how_much() {
    let quotas = quotas(&[(Instances, 8)]);
    let _held = [
        quotas.room(&acme(), room("function f", 5, 1)).unwrap(),
        quotas.room(&acme(), room("query q-12", 3, 1)).unwrap(),
    ];
    let refused = quotas.room(&acme(), room("function g", 1, 1)).unwrap_err();
    assert_eq!(refused.known_code(), Code::QUOTA);
    assert_eq!(
        refused.message,
        "tenant `acme` uses 8 of 8 instances: 5 of function f, 3 of query q-12"
    );
    assert_eq!((refused.retryable, refused.retry_after_s), (true, Some(1)));
    let never = quotas.room(&acme(), room("query q-13", 9, 1)).unwrap_err();
    assert!(never.message.contains("8 of 8 instances, and 9 more are needed"), "{never}");
    assert_eq!((never.retryable, never.retry_after_s), (false, None), "no wait helps");
    let other = "other".parse().unwrap();
    drop(quotas.room(&other, room("function g", 8, 1)).unwrap());
}

#[test]
fn each_amount_of_a_room_has_its_limit() {
    for kind in [Instances, Memory, Cores] {
        let most = match kind {
            Memory => 2 * GIB,
            Cores => 1000,
            _ => 2,
        };
        let quotas = quotas(&[(kind, most)]);
        let held = quotas.room(&acme(), room("function f", 2, 1)).unwrap();
        let refused = quotas.room(&acme(), room("function f", 1, 1)).unwrap_err();
        assert_eq!(refused.known_code(), Code::QUOTA, "{kind}");
        drop(held);
        quotas.room(&acme(), room("function f", 1, 1)).unwrap();
    }
}

#[test]
fn calls_share_the_instances_that_take_several() {
    let quotas = quotas(&[(Instances, 1)]);
    let held: Vec<_> =
        (0..4).map(|_| quotas.room(&acme(), room("function f", 1, 4)).unwrap()).collect();
    assert!(quotas.room(&acme(), room("function f", 1, 4)).is_err());
    drop(held);
    assert_eq!(used(&quotas, Instances), 0);
}

#[tokio::test]
async fn what_was_accepted_waits_for_its_turn() {
    let quotas = quotas(&[(Calls, 1), (Instances, 1)]);
    let first = quotas.calls(&acme(), "f", 1).unwrap();
    let held = quotas.room(&acme(), room("function f", 1, 1)).unwrap();
    let waits = quotas.clone();
    let waiting = tokio::spawn(async move {
        let _begun = waits.call_in_turn(&acme(), "f").await;
        drop(waits.room_in_turn(&acme(), room("function f", 1, 1)).await.unwrap());
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!waiting.is_finished());
    drop(first);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!waiting.is_finished());
    drop(held);
    waiting.await.unwrap();
    assert_eq!((used(&quotas, Calls), used(&quotas, Instances)), (0, 0));
    // A limit that is raised is heard as well, and one who waits no more holds nothing.
    let held = quotas.room(&acme(), room("function f", 1, 1)).unwrap();
    let waits = quotas.clone();
    let waiting =
        tokio::spawn(async move { waits.room_in_turn(&acme(), room("f", 1, 1)).await.map(drop) });
    tokio::time::sleep(Duration::from_millis(20)).await;
    quotas.set(&acme(), &OwnLimits::from([(Instances, QuotaLimit::AtMost(2))]));
    waiting.await.unwrap().unwrap();
    let tenant = acme();
    let mut given_up = Box::pin(quotas.room_in_turn(&tenant, room("f", 2, 1)));
    assert!(futures::poll!(&mut given_up).is_pending());
    drop(given_up);
    drop(held);
    assert_eq!(used(&quotas, Instances), 0);
}

#[test]
fn a_batch_takes_the_places_that_there_are() {
    let quotas = quotas(&[(Calls, 4)]);
    let one = quotas.calls(&acme(), "f", 1).unwrap();
    let batch = quotas.calls(&acme(), "f", 10).unwrap();
    assert_eq!((batch.places(), used(&quotas, Calls)), (3, 4));
    assert!(quotas.calls(&acme(), "f", 10).is_err());
    drop((one, batch));
    assert_eq!(quotas.calls(&acme(), "f", 10).unwrap().places(), 4);
}

#[test]
fn calls_begin_at_their_rate() {
    let quotas = quotas(&[(CallsPerSecond, 3)]);
    for _ in 0..3 {
        drop(quotas.calls(&acme(), "f", 1).unwrap());
    }
    let refused = quotas.call_later(&acme()).unwrap_err();
    assert_eq!(refused.message, "tenant `acme` uses 3 of 3 calls a second");
    assert_eq!(refused.retry_after_s, Some(1));
    assert_eq!(used(&quotas, Calls), 0, "one that is refused has no place");
}

#[test]
fn names_of_functions_have_places_until_they_are_gone() {
    let quotas = quotas(&[(Functions, 2)]);
    let name = |name: &str| name.parse::<FunctionName>().unwrap();
    quotas.has_function(&acme(), &name("a"));
    drop(quotas.function(&acme(), &name("failed")).unwrap());
    quotas.function(&acme(), &name("b")).unwrap().keep();
    let refused = quotas.function(&acme(), &name("c")).unwrap_err();
    assert_eq!(refused.message, "tenant `acme` uses 2 of 2 functions: a, b");
    assert!(!refused.retryable);
    drop(quotas.function(&acme(), &name("a")).unwrap());
    assert_eq!(used(&quotas, Functions), 2, "deploying again takes and frees nothing");
    quotas.function_is_gone(&acme(), &name("a"));
    quotas.function(&acme(), &name("c")).unwrap().keep();
}

#[test]
fn the_seconds_of_a_day_are_used_up() {
    let quotas = quotas(&[(GibSecondsPerDay, 100)]);
    let held = quotas.room(&acme(), room("function f", 1, 1)).unwrap();
    let today =
        quotas.days().first().map_or_else(|| crate::now_ms() / rooms::DAY_MS, |(_, day)| day.day);
    quotas.had(&acme(), DayUse { day: today - 1, byte_ms: u128::from(GIB) * 200_000 });
    drop(quotas.room(&acme(), room("function f", 1, 1)).unwrap());
    quotas.had(&acme(), DayUse { day: today, byte_ms: u128::from(GIB) * 100_000 });
    let refused = quotas.room(&acme(), room("function f", 1, 1)).unwrap_err();
    assert!(refused.message.starts_with("tenant `acme` uses 100 of 100 GiB-seconds"), "{refused}");
    assert!(refused.message.ends_with("now running 1 GiB of function f"), "{refused}");
    assert!((1..=86_400).contains(&refused.retry_after_s.unwrap()));
    drop(held);
}

#[test]
fn bodies_count_until_they_are_dropped() {
    let quotas = quotas(&[(RequestMemory, 10)]);
    let begin = quotas.bodies(&acme());
    let mut first = (begin.0)();
    first.grow_to(4).unwrap();
    first.grow_to(6).unwrap();
    let mut second = (begin.0)();
    assert_eq!(second.grow_to(5).unwrap_err().known_code(), Code::QUOTA);
    second.grow_to(4).unwrap();
    assert!(!second.grow_to(11).unwrap_err().message.is_empty());
    drop((first, second));
    assert_eq!(used(&quotas, RequestMemory), 0);
}

#[tokio::test]
async fn one_task_of_a_query_can_always_run() {
    let quotas = quotas(&[(Instances, 4), (Queries, 1)]);
    let begun = quotas.query(&acme(), "q-1").unwrap();
    assert!(quotas.query(&acme(), "q-2").is_err());
    let one = SandboxSum { sandboxes: 1, memory: ByteSize(GIB), cpu_millis: 1000 };
    let share = Arc::new(quotas.query_share(&acme(), &QueryId::new()));
    share.begin(one.plus(one)).unwrap();
    let kept = share.wait(one).await;
    let more = share.wait(one).await;
    let third = share.take(one).unwrap();
    assert!(share.take(one).is_none());
    let waits = Arc::clone(&share);
    let waiting = tokio::spawn(async move { waits.wait(one).await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!waiting.is_finished());
    drop(kept);
    let again = waiting.await.unwrap();
    drop((again, more, third, share, begun));
    assert_eq!((used(&quotas, Instances), used(&quotas, Queries)), (0, 0));
}

#[test]
fn a_full_disk_is_refused_with_what_has_how_much() {
    let quotas = quotas(&[(Disk, 10 << 20)]);
    quotas.check_disk(&acme(), 10 << 20).unwrap();
    quotas.has_on_disk(&acme(), &[("images", 7 << 20), ("files", 2 << 20), ("logs", 0)]);
    quotas.check_disk(&acme(), 1 << 20).unwrap();
    let refused = quotas.check_disk(&acme(), 2 << 20).unwrap_err();
    assert_eq!(refused.known_code(), Code::QUOTA);
    let said = "tenant `acme` uses 9 MiB of 10 MiB on the disk, and 2 MiB more are needed: \
                7 MiB of images, 2 MiB of files";
    assert_eq!(refused.message, said);
    assert_eq!(refused.retry_after_s, None, "nothing goes away by waiting");
    quotas.has_on_disk(&acme(), &[("images", 1 << 20)]);
    assert_eq!(used(&quotas, Disk), 1 << 20);
    quotas.check_disk(&acme(), 2 << 20).unwrap();
    quotas.has_on_disk(&acme(), &[("images", 10 << 20)]);
    assert!(quotas.check_disk(&acme(), 0).is_err(), "whatever adds to it");
}

#[test]
fn limits_of_a_tenant_go_before_the_defaults() {
    let quotas = quotas(&[(Calls, 1)]);
    let limit = || {
        let summary = quotas.summary(&acme());
        let calls = summary.quotas.into_iter().find(|quota| quota.kind == Calls).unwrap();
        (calls.limit, calls.own)
    };
    assert_eq!(limit(), (Some(1), false));
    quotas.set(&acme(), &OwnLimits::from([(Calls, QuotaLimit::AtMost(7))]));
    assert_eq!(limit(), (Some(7), true));
    quotas.set(&acme(), &OwnLimits::from([(Calls, QuotaLimit::Unlimited)]));
    assert_eq!(limit(), (None, true));
    quotas.set(&acme(), &OwnLimits::new());
    assert_eq!(limit(), (Some(1), false));
}
