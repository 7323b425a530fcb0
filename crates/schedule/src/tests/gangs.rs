//! Gangs: all ranks or none, beside calls.

use std::sync::Arc;
use std::time::Duration;

use snowmelt_types::Digest;

use super::{SECOND, call, decided, name, of, run, scheduler, waits};
use crate::{Decision, GangDemand, GangRanks, GangRoom, HostRoom, Scheduler, Ticket};

pub(super) const OVERCOMMIT: u32 = 2;
pub(super) const ROOM: HostRoom = HostRoom {
    memory: 100,
    cpu_millis: 2000,
    ranks: 50,
    tasks: 50,
    sandboxes: 50,
    overcommit: OVERCOMMIT,
};

/// Makes hosts that each have 100 bytes for instances of calls, or 50 for ranks, or 50 for tasks.
pub(super) fn hosts(count: usize) -> Scheduler {
    let mut made = scheduler(0, 0, 0);
    (1..=count).for_each(|number| made.report(&name(number), ROOM));
    made
}

pub(super) fn gang(ranks: u32, memory: u64) -> GangDemand {
    GangDemand {
        tenant: "t".parse().unwrap(),
        image: None,
        ranks,
        memory,
        cpu_millis: 1000,
        most_hosts: None,
        only: None,
    }
}

pub(super) fn of_tenant(tenant: &str, gang: GangDemand) -> GangDemand {
    GangDemand { tenant: tenant.parse().unwrap(), ..gang }
}

pub(super) fn ask(scheduler: &mut Scheduler, gang: GangDemand, now: Duration) -> Ticket {
    scheduler.ask_gang(Arc::new(gang), now, now + 300 * SECOND)
}

/// Asks for a gang that starts at once.
fn start(scheduler: &mut Scheduler, gang: GangDemand, now: Duration) -> (Ticket, GangRanks) {
    let ticket = ask(scheduler, gang, now);
    match scheduler.next(now) {
        Some(Decision::Start(started, parts)) if started == ticket => (ticket, parts),
        other => panic!("{other:?}"),
    }
}

fn waiting(scheduler: &mut Scheduler, gang: GangDemand, now: Duration) -> Ticket {
    let ticket = ask(scheduler, gang, now);
    assert_eq!(decided(scheduler, now), []);
    ticket
}

#[test]
fn a_gang_starts_as_a_whole_and_waits_for_calls_and_other_gangs() {
    let mut scheduler = hosts(2);
    let now = Duration::ZERO;
    let (first, parts) = start(&mut scheduler, gang(4, 20), now);
    assert_eq!(parts, [(name(1), 2), (name(2), 2)]);
    assert!(scheduler.has_ranks(&name(2)));
    let second = waiting(&mut scheduler, gang(2, 20), now);
    scheduler.ended(first, None, SECOND);
    assert_eq!(
        decided(&mut scheduler, SECOND),
        [Decision::Start(second, vec![(name(1), 1), (name(2), 1)])]
    );
    scheduler.ended(second, None, SECOND);
    // Calls reserve a part of their limits, and ranks all of theirs.
    let (long, _) = run(&mut scheduler, call("f", 22), SECOND);
    let all = gang(4, 20);
    let third = waiting(&mut scheduler, all.clone(), SECOND);
    assert_eq!(scheduler.gang_room(&all), GangRoom { hosts: 2, free: 60, most: 80 });
    scheduler.ended(long, None, SECOND);
    let expected = vec![(name(1), 2), (name(2), 2)];
    assert_eq!(decided(&mut scheduler, SECOND), [Decision::Start(third, expected)]);
}

#[test]
fn a_gang_that_no_hosts_could_ever_hold_is_refused_unless_some_may_come() {
    let mut scheduler = hosts(2);
    let now = Duration::ZERO;
    start(&mut scheduler, gang(2, 50), now);
    for too_much in [gang(5, 20), GangDemand { most_hosts: Some(1), ..gang(3, 20) }] {
        let asked = ask(&mut scheduler, too_much, now);
        assert_eq!(decided(&mut scheduler, now), [Decision::Refused(asked)]);
    }
    scheduler.set_may_grow(true);
    let large = waiting(&mut scheduler, gang(5, 20), now);
    assert_eq!(scheduler.lacking(now), 0, "others may end in a moment");
    // Nothing is free, and each host holds two.
    assert_eq!(scheduler.lacking(SECOND), 3);
    let bound = ask(&mut scheduler, GangDemand { only: Some(name(1)), ..gang(3, 20) }, now);
    assert_eq!(decided(&mut scheduler, now), [Decision::Refused(bound)]);
    for number in 3..6 {
        assert_eq!(decided(&mut scheduler, SECOND), []);
        scheduler.report(&name(number), ROOM);
    }
    let expected = vec![(name(3), 2), (name(4), 2), (name(5), 1)];
    assert_eq!(decided(&mut scheduler, SECOND), [Decision::Start(large, expected)]);
    assert_eq!(scheduler.lacking(2 * SECOND), 0);
}

#[test]
fn a_gang_waits_for_a_host_that_is_drained_unless_it_names_it() {
    let mut scheduler = hosts(2);
    let now = Duration::ZERO;
    scheduler.drain(&name(2), true);
    let all = waiting(&mut scheduler, gang(4, 20), now);
    for never in [
        gang(5, 20),
        GangDemand { most_hosts: Some(1), ..gang(4, 20) },
        GangDemand { only: Some(name(2)), ..gang(1, 20) },
    ] {
        let asked = ask(&mut scheduler, never, now);
        assert_eq!(decided(&mut scheduler, now), [Decision::Refused(asked)]);
    }
    scheduler.drain(&name(2), false);
    let expected = vec![(name(1), 2), (name(2), 2)];
    assert_eq!(decided(&mut scheduler, SECOND), [Decision::Start(all, expected)]);
}

#[test]
fn a_gang_expires_or_is_withdrawn_and_leaves_nothing() {
    let mut scheduler = hosts(1);
    let now = Duration::ZERO;
    let (first, _) = start(&mut scheduler, gang(2, 25), now);
    let expires = waiting(&mut scheduler, gang(1, 25), now);
    let withdrawn = waiting(&mut scheduler, gang(1, 25), SECOND);
    scheduler.withdraw(withdrawn, SECOND);
    assert_eq!(decided(&mut scheduler, 300 * SECOND), [Decision::Expired(expires)]);
    assert_eq!(scheduler.waiting(), 0);
    scheduler.ended(first, None, 300 * SECOND);
    start(&mut scheduler, gang(2, 25), 300 * SECOND);
}

#[test]
fn a_gang_on_few_hosts_prefers_control_and_those_with_its_image() {
    let mut scheduler = hosts(4);
    let now = Duration::ZERO;
    let image = Digest::of("image");
    let on = |most, ranks| GangDemand {
        image: Some(image.clone()),
        most_hosts: Some(most),
        ..gang(ranks, 10)
    };
    scheduler.holds(&name(4), &image, 1);
    scheduler.holds(&name(3), &image, 2);
    let (first, parts) = start(&mut scheduler, on(2, 2), now);
    assert_eq!(parts, [(name(1), 1), (name(4), 1)]);
    let (second, parts) = start(&mut scheduler, on(3, 3), now);
    assert_eq!(parts, [(name(1), 1), (name(3), 1), (name(4), 1)]);
    scheduler.ended(first, None, now);
    scheduler.ended(second, None, now);
    // What it prefers is too small.
    start(&mut scheduler, GangDemand { only: Some(name(1)), ..gang(4, 10) }, now);
    assert_eq!(start(&mut scheduler, on(1, 5), now).1, [(name(2), 5)]);
}

#[test]
fn a_gang_of_an_earlier_control_is_counted_when_its_hosts_come() {
    let mut scheduler = hosts(1);
    let now = Duration::ZERO;
    let parts = vec![(name(1), 1), (name(2), 1)];
    let earlier = scheduler.runs_gang(Arc::new(gang(2, 50)), parts, now);
    scheduler.report(&name(2), ROOM);
    waiting(&mut scheduler, gang(1, 10), now);
    // A host that was lost has them again when it is back.
    scheduler.remove(&name(2), now);
    scheduler.report(&name(2), ROOM);
    assert_eq!(decided(&mut scheduler, now), []);
    scheduler.ended(earlier, None, now);
    assert_eq!(decided(&mut scheduler, now).len(), 1);
}

#[test]
fn a_gang_that_waits_for_gangs_lets_calls_pass_and_tenants_with_less() {
    let mut scheduler = hosts(2);
    let now = Duration::ZERO;
    let (first, _) = start(&mut scheduler, gang(2, 40), now);
    let large = waiting(&mut scheduler, gang(2, 50), now);
    let late = 20 * SECOND;
    run(&mut scheduler, of("u", call("f", 10)), late);
    // Its own tenant's wait behind it, and one that has nothing does not.
    let small = waiting(&mut scheduler, gang(1, 5), late);
    let (other, _) = start(&mut scheduler, of_tenant("v", gang(1, 5)), late);
    scheduler.ended(other, None, late);
    scheduler.ended(first, None, late);
    // Now only the call is in its way, and its share is kept.
    assert_eq!(decided(&mut scheduler, late), []);
    waits(&mut scheduler, of("u", call("g", 10)), late);
    scheduler.withdraw(large, late);
    let ran = decided(&mut scheduler, late);
    assert!(ran.iter().any(|one| matches!(one, Decision::Start(it, _) if *it == small)), "{ran:?}");
}

#[test]
fn a_call_that_has_waited_for_longer_than_a_gang_comes_first() {
    let mut scheduler = hosts(1);
    let now = Duration::ZERO;
    let (small, _) = run(&mut scheduler, call("small", 20), now);
    let large = waits(&mut scheduler, call("large", 100), now);
    let all = waiting(&mut scheduler, gang(1, 50), SECOND);
    let late = 20 * SECOND;
    scheduler.ended(small, Some(0), late);
    assert_eq!(decided(&mut scheduler, late), [Decision::Run(large, name(1))]);
    scheduler.ended(large, Some(0), late);
    assert_eq!(decided(&mut scheduler, late), [Decision::Start(all, vec![(name(1), 1)])]);
}
