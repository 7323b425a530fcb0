//! Decisions; `properties` and `gang_properties` have invariants after any sequence of requests,
//! `choices` compares each choice of a host with a look at all of them (`linear`), `gangs` what
//! starts together, `tasks` what queries ask for, `reclaim` what is taken back, and `pool` how many
//! hosts there are.

mod choices;
mod gang_properties;
mod gangs;
mod linear;
mod pool;
mod properties;
mod reclaim;
mod tasks;

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use snowmelt_types::{Digest, HostName};

use crate::scheduler::shares::{Spare, shares};
use crate::{CallDemand, Decision, HostRoom, Scheduler, SchedulerPolicy, Ticket};

const SECOND: Duration = Duration::from_secs(1);
const RECLAIM_AFTER: Duration = Duration::from_secs(900);
const MIB: u64 = 1 << 20;

fn name(number: usize) -> HostName {
    format!("host-{number}").try_into().unwrap()
}

fn scheduler(hosts: usize, memory: u64, cores: u64) -> Scheduler {
    let policy = SchedulerPolicy {
        instances_per_host: 20,
        near: Some(name(1)),
        starved_after: 15 * SECOND,
        reclaim_after: RECLAIM_AFTER,
    };
    let mut made = Scheduler::new(policy);
    for number in 1..=hosts {
        made.report(
            &name(number),
            HostRoom { memory, cpu_millis: cores * 1000, ..HostRoom::default() },
        );
    }
    made
}

pub(crate) fn call(function: &str, memory: u64) -> CallDemand {
    CallDemand {
        tenant: "t".parse().unwrap(),
        function: Digest::of(function),
        image: None,
        memory,
        cpu_millis: 1000,
        concurrency: 1,
        idle: 60 * SECOND,
        only: None,
        near_first: false,
    }
}

fn of(tenant: &str, call: CallDemand) -> CallDemand {
    CallDemand { tenant: tenant.parse().unwrap(), ..call }
}

/// Returns all decisions that are possible now.
fn decided(scheduler: &mut Scheduler, now: Duration) -> Vec<Decision> {
    std::iter::from_fn(|| scheduler.next(now)).collect()
}

/// Asks for a call that runs at once.
fn run(scheduler: &mut Scheduler, call: CallDemand, now: Duration) -> (Ticket, HostName) {
    let ticket = scheduler.ask(Arc::new(call), now, now + 30 * SECOND);
    match scheduler.next(now) {
        Some(Decision::Run(run, host)) if run == ticket => (ticket, host),
        other => panic!("{other:?}"),
    }
}

fn waits(scheduler: &mut Scheduler, call: CallDemand, now: Duration) -> Ticket {
    let ticket = scheduler.ask(Arc::new(call), now, now + 30 * SECOND);
    assert_eq!(scheduler.next(now), None);
    ticket
}

#[test]
fn a_call_goes_where_an_instance_is_idle_and_first_to_control() {
    let mut scheduler = scheduler(3, 1024 * MIB, 1);
    let runs: Vec<_> =
        (0..3).map(|_| run(&mut scheduler, call("f", MIB), Duration::ZERO)).collect();
    // A host whose one core is taken is full as long as another one is not.
    let mut hosts: Vec<_> = runs.iter().map(|(_, host)| host.clone()).collect();
    hosts.sort();
    assert_eq!(hosts, [name(1), name(2), name(3)]);
    for (second, (ticket, _)) in runs.iter().enumerate() {
        scheduler.ended(*ticket, Some(1), SECOND * second as u32);
    }
    let now = 3 * SECOND;
    assert_eq!(run(&mut scheduler, call("f", MIB), now).1, name(1));
    assert_eq!(run(&mut scheduler, call("f", MIB), now).1, runs[2].1, "the one used last");
    assert_eq!(run(&mut scheduler, call("f", MIB), now).1, runs[1].1);
}

#[test]
fn a_call_that_wants_controls_host_leaves_it_when_its_cores_are_taken() {
    let mut scheduler = scheduler(3, 1024 * MIB, 1);
    let lease = || CallDemand { near_first: true, ..call("f", MIB) };
    // An instance is idle on another host.
    scheduler.drain(&name(1), true);
    let (elsewhere, other) = run(&mut scheduler, call("f", MIB), Duration::ZERO);
    scheduler.drain(&name(1), false);
    scheduler.ended(elsewhere, Some(1), Duration::ZERO);
    let (first, host) = run(&mut scheduler, lease(), SECOND);
    assert_eq!(host, name(1), "a start is cheaper than the way of all that is sent");
    assert_eq!(run(&mut scheduler, lease(), SECOND).1, other, "the idle one");
    let third = run(&mut scheduler, lease(), SECOND).1;
    assert!(third != name(1) && third != other);
    scheduler.ended(first, Some(1), 2 * SECOND);
    assert_eq!(run(&mut scheduler, lease(), 2 * SECOND).1, name(1));
    // A host that gets nothing new is left alone.
    scheduler.drain(&name(1), true);
    assert_ne!(run(&mut scheduler, lease(), 2 * SECOND).1, name(1));
}

#[test]
fn an_instance_that_ends_with_its_call_leaves_the_others_of_its_host() {
    let mut scheduler = scheduler(1, 1024 * MIB, 8);
    let runs = [(); 3].map(|()| run(&mut scheduler, call("f", MIB), Duration::ZERO).0);
    let known = |scheduler: &Scheduler| {
        let idle: u32 = scheduler.idle(&call("f", MIB), SECOND).map(|(_, idle)| idle).sum();
        (idle, scheduler.calls_on(&name(1)))
    };
    scheduler.ended(runs[0], Some(3), Duration::ZERO);
    assert_eq!(known(&scheduler), (1, 2));
    scheduler.ended_with_instance(runs[1], SECOND);
    assert_eq!(known(&scheduler), (1, 1));
}

#[test]
fn the_host_with_the_most_free_memory_is_known() {
    let mut scheduler = scheduler(2, 100 * MIB, 8);
    let (_, first) = run(&mut scheduler, call("f", 60 * MIB), Duration::ZERO);
    let other = if first == name(1) { name(2) } else { name(1) };
    assert_eq!(scheduler.most_free(), Some((&other, 100 * MIB)));
    scheduler.drain(&other, true);
    assert_eq!(scheduler.most_free(), Some((&first, 40 * MIB)));
    scheduler.drain(&first, true);
    assert_eq!(scheduler.most_free(), None);
}

#[test]
fn functions_that_have_no_instances_any_more_are_forgotten() {
    let mut scheduler = scheduler(3, 1024 * MIB, 8);
    for number in 0..100 {
        let now = SECOND * number;
        let (ticket, _) = run(&mut scheduler, call(&format!("f{number}"), MIB), now);
        scheduler.ended(ticket, Some(1), now);
    }
    let known = |scheduler: &Scheduler| -> usize {
        let each = scheduler.hosts.ids().filter_map(|id| scheduler.hosts.by_id(id));
        each.map(|entry| entry.functions.len()).sum()
    };
    assert_eq!(known(&scheduler), 100);
    // All but those of the last minute have ended by now.
    scheduler.sweep(SECOND * 100);
    let left = known(&scheduler);
    assert!(0 < left && left <= 61, "{left}");
    scheduler.sweep(SECOND * 1000);
    assert_eq!(known(&scheduler), 0);
}

#[test]
fn an_idle_instance_whose_host_is_busy_comes_after_a_free_core() {
    let mut scheduler = scheduler(2, 1024 * MIB, 1);
    let image = Digest::of("image");
    let with_image = |function| CallDemand { image: Some(image.clone()), ..call(function, MIB) };
    let idle = |scheduler: &mut Scheduler, function: &'static str| {
        scheduler.drain(&name(2), true);
        let ran = [0, 1].map(|_| run(scheduler, with_image(function), Duration::ZERO).0);
        ran.into_iter().for_each(|ticket| scheduler.ended(ticket, Some(2), Duration::ZERO));
        scheduler.drain(&name(2), false);
    };
    idle(&mut scheduler, "f");
    assert_eq!(run(&mut scheduler, with_image("f"), SECOND).1, name(1));
    // The other host would have to read the image first.
    let (second, host) = run(&mut scheduler, with_image("f"), SECOND);
    assert_eq!(host, name(1));
    scheduler.ended(second, Some(2), SECOND);
    scheduler.holds(&name(2), &image, 1);
    assert_eq!(run(&mut scheduler, with_image("f"), SECOND).1, name(2));
    // When all cores are taken, the idle instance is the cheapest start.
    assert_eq!(run(&mut scheduler, with_image("f"), SECOND).1, name(1));
}

#[test]
fn a_new_instance_goes_where_the_function_was_then_where_its_image_is() {
    let mut scheduler = scheduler(4, 1024 * MIB, 4);
    let image = Digest::of("image");
    let with_image = |function| CallDemand { image: Some(image.clone()), ..call(function, MIB) };
    scheduler.holds(&name(3), &image, 2);
    scheduler.holds(&name(4), &image, 1);
    assert_eq!(run(&mut scheduler, with_image("f"), Duration::ZERO).1, name(4), "near the root");
    assert_eq!(run(&mut scheduler, with_image("g"), Duration::ZERO).1, name(4));
    assert_eq!(run(&mut scheduler, with_image("f"), Duration::ZERO).1, name(4));
    // The others hold nothing of it: the one that sends in fewer trees is taken.
    scheduler.sends_in(&name(1), 2);
    scheduler.sends_in(&name(2), 1);
    scheduler.sends_in(&name(3), 1);
    scheduler.sends_in(&name(4), 1);
    assert_eq!(run(&mut scheduler, call("h", MIB), Duration::ZERO).1, name(4), "the fullest");
}

#[test]
fn no_host_has_more_instances_of_a_function_than_the_policy_says() {
    let mut scheduler = scheduler(2, 1 << 40, 1000);
    for _ in 0..40 {
        run(&mut scheduler, call("f", MIB), Duration::ZERO);
    }
    let running: Vec<_> = scheduler.running(&Digest::of("f")).map(|(_, calls)| calls).collect();
    assert_eq!(running, [20, 20]);
    waits(&mut scheduler, call("f", MIB), Duration::ZERO);
    run(&mut scheduler, call("g", MIB), Duration::ZERO);
}

#[test]
fn calls_share_an_instance_up_to_its_concurrency() {
    let mut scheduler = scheduler(2, 10 * MIB, 8);
    let shared = || CallDemand { concurrency: 3, ..call("f", 10 * MIB) };
    let hosts: Vec<_> = (0..4).map(|_| run(&mut scheduler, shared(), Duration::ZERO).1).collect();
    assert_eq!(hosts[..3], [hosts[0].clone(), hosts[0].clone(), hosts[0].clone()]);
    assert_ne!(hosts[3], hosts[0]);
}

#[test]
fn waiting_calls_run_when_room_is_free_or_expire() {
    let mut scheduler = scheduler(1, 10 * MIB, 8);
    let (first, _) = run(&mut scheduler, call("f", 10 * MIB), Duration::ZERO);
    let second = waits(&mut scheduler, call("g", 10 * MIB), Duration::ZERO);
    let third = waits(&mut scheduler, call("h", 10 * MIB), SECOND);
    scheduler.ended(first, Some(0), 2 * SECOND);
    assert_eq!(decided(&mut scheduler, 2 * SECOND), [Decision::Run(second, name(1))]);
    assert_eq!(decided(&mut scheduler, 31 * SECOND), [Decision::Expired(third)]);
    assert_eq!(scheduler.waiting(), 0);
    // It will never fit.
    let asked = scheduler.ask(Arc::new(call("i", 11 * MIB)), Duration::ZERO, 30 * SECOND);
    assert_eq!(decided(&mut scheduler, Duration::ZERO), [Decision::Refused(asked)]);
}

#[test]
fn the_tenant_with_the_least_memory_comes_first() {
    let mut scheduler = scheduler(1, 40 * MIB, 8);
    let running: Vec<_> = (0..4)
        .map(|_| run(&mut scheduler, of("greedy", call("f", 10 * MIB)), Duration::ZERO).0)
        .collect();
    for _ in 0..10 {
        waits(&mut scheduler, of("greedy", call("f", 10 * MIB)), Duration::ZERO);
    }
    let modest = waits(&mut scheduler, of("modest", call("g", 10 * MIB)), SECOND);
    scheduler.ended(running[0], Some(1), 2 * SECOND);
    // An idle instance is no reason to pass the tenant that has less.
    assert_eq!(scheduler.next(2 * SECOND), Some(Decision::Run(modest, name(1))));
}

#[test]
fn a_large_call_is_not_passed_for_ever_by_small_ones() {
    let mut scheduler = scheduler(1, 100 * MIB, 8);
    let small: Vec<_> = (0..10)
        .map(|number| run(&mut scheduler, call(&format!("s{number}"), 10 * MIB), Duration::ZERO).0)
        .collect();
    let large = waits(&mut scheduler, call("large", 100 * MIB), Duration::ZERO);
    scheduler.ended(small[0], Some(0), SECOND);
    run(&mut scheduler, call("another", 10 * MIB), SECOND);
    // It has waited for long: room is kept for it.
    scheduler.ended(small[1], Some(0), 16 * SECOND);
    let late = waits(&mut scheduler, call("late", 10 * MIB), 16 * SECOND);
    // What it could not use is not kept for it.
    scheduler
        .report(&name(2), HostRoom { memory: 10 * MIB, cpu_millis: 8000, ..HostRoom::default() });
    assert_eq!(decided(&mut scheduler, 16 * SECOND), [Decision::Run(late, name(2))]);
    let late = waits(&mut scheduler, call("later", 10 * MIB), 16 * SECOND);
    scheduler.withdraw(large, 17 * SECOND);
    assert_eq!(decided(&mut scheduler, 17 * SECOND), [Decision::Run(late, name(1))]);
}

#[test]
fn a_call_waits_while_others_take_the_memory_and_a_host_is_drained() {
    let mut scheduler = scheduler(1, 100 * MIB, 8);
    // A query has most of it.
    scheduler
        .report(&name(1), HostRoom { memory: 10 * MIB, cpu_millis: 8000, ..HostRoom::default() });
    let waiting = waits(&mut scheduler, call("f", 50 * MIB), Duration::ZERO);
    scheduler
        .report(&name(1), HostRoom { memory: 100 * MIB, cpu_millis: 8000, ..HostRoom::default() });
    scheduler.drain(&name(1), true);
    assert_eq!(decided(&mut scheduler, SECOND), []);
    scheduler.drain(&name(1), false);
    assert_eq!(decided(&mut scheduler, SECOND), [Decision::Run(waiting, name(1))]);
}

#[test]
fn a_call_whose_host_was_removed_before_it_refused_waits_again() {
    let mut scheduler = scheduler(1, 100 * MIB, 8);
    let (ticket, host) = run(&mut scheduler, call("f", 10 * MIB), Duration::ZERO);
    scheduler.remove(&host, Duration::ZERO);
    scheduler.refused(ticket, Duration::ZERO);
    scheduler
        .report(&name(2), HostRoom { memory: 100 * MIB, cpu_millis: 8000, ..HostRoom::default() });
    assert_eq!(decided(&mut scheduler, SECOND), [Decision::Run(ticket, name(2))]);
    scheduler.remove(&name(2), SECOND);
    scheduler.refused(ticket, SECOND);
    scheduler.report(&name(3), HostRoom { memory: 0, cpu_millis: 8000, ..HostRoom::default() });
    assert_eq!(decided(&mut scheduler, 2 * SECOND), [Decision::Refused(ticket)]);
}

#[test]
fn a_call_at_the_limit_of_instances_keeps_no_room_from_others() {
    let mut scheduler = scheduler(1, 1 << 40, 1000);
    for _ in 0..20 {
        run(&mut scheduler, of("many", call("f", MIB)), Duration::ZERO);
    }
    waits(&mut scheduler, of("many", call("f", MIB)), Duration::ZERO);
    run(&mut scheduler, of("other", call("g", MIB)), 16 * SECOND);
}

#[test]
fn a_host_that_refuses_gets_nothing_new_until_it_reports() {
    let mut scheduler = scheduler(2, 100 * MIB, 1);
    let (ticket, first) = run(&mut scheduler, call("f", 10 * MIB), Duration::ZERO);
    scheduler.refused(ticket, Duration::ZERO);
    let other = if first == name(1) { name(2) } else { name(1) };
    assert_eq!(decided(&mut scheduler, Duration::ZERO), [Decision::Run(ticket, other.clone())]);
    scheduler.refused(ticket, Duration::ZERO);
    assert_eq!(decided(&mut scheduler, Duration::ZERO), []);
    scheduler
        .report(&first, HostRoom { memory: 100 * MIB, cpu_millis: 1000, ..HostRoom::default() });
    assert_eq!(decided(&mut scheduler, SECOND), [Decision::Run(ticket, first)]);
}

#[test]
fn a_drained_host_gets_no_calls_and_a_lost_one_loses_them() {
    let mut scheduler = scheduler(2, 100 * MIB, 2);
    let (ticket, _) = run(&mut scheduler, call("f", 10 * MIB), Duration::ZERO);
    scheduler.ended(ticket, Some(1), Duration::ZERO);
    scheduler.drain(&name(1), true);
    let (there, host) = run(&mut scheduler, call("f", 10 * MIB), Duration::ZERO);
    assert_eq!(host, name(2));
    scheduler.remove(&host, SECOND);
    assert_eq!(scheduler.running(&Digest::of("f")).map(|(_, calls)| calls).sum::<u32>(), 0);
    // It came back in between: what ended was not there.
    scheduler
        .report(&host, HostRoom { memory: 100 * MIB, cpu_millis: 2000, ..HostRoom::default() });
    run(&mut scheduler, call("f", 10 * MIB), SECOND);
    scheduler.ended(there, None, SECOND);
    assert_eq!(scheduler.memory(&host), Some((10 * MIB, 100 * MIB)));
}

#[test]
fn an_idle_instance_is_not_counted_on_after_its_time() {
    let mut scheduler = scheduler(2, 100 * MIB, 1);
    let (ticket, _) = run(&mut scheduler, call("f", 100 * MIB), Duration::ZERO);
    scheduler.ended(ticket, Some(1), Duration::ZERO);
    scheduler.sweep(59 * SECOND);
    assert_eq!(scheduler.running(&Digest::of("f")).count(), 1);
    scheduler.sweep(60 * SECOND);
    assert_eq!(scheduler.running(&Digest::of("f")).count(), 0);
}

#[test]
fn a_burst_is_shared_by_cores_as_far_as_memory_goes() {
    let room = |memory, cores| Spare { memory, cores };
    assert_eq!(shares(8, 1, &[room(64, 2), room(64, 2)]).unwrap(), [4, 4]);
    assert_eq!(shares(9, 1, &[room(64, 1), room(64, 2)]).unwrap(), [3, 6]);
    assert_eq!(shares(8, 1, &[room(2, 2), room(64, 2)]).unwrap(), [2, 6]);
    assert_eq!(shares(1, 1, &[room(1, 2), room(1, 2)]).unwrap(), [1, 0]);
    assert_eq!(shares(3, 1, &[room(1, 2), room(1, 2)]), None);
}

proptest! {
    #[test]
    fn every_rank_of_a_burst_has_one_host_with_room_for_it(
        ranks in 0_u32..5_000,
        rooms in prop::collection::vec((0_u64..64, 0_u32..64), 1..20),
    ) {
        let each = 256 * MIB;
        let spare: Vec<_> =
            rooms.iter().map(|(gib, cores)| Spare { memory: gib << 30, cores: *cores }).collect();
        let all: u64 = spare.iter().map(|room| room.memory / each).sum();
        match shares(ranks, each, &spare) {
            Some(shares) => {
                prop_assert_eq!(shares.iter().sum::<u32>(), ranks);
                for (share, room) in shares.iter().zip(&spare) {
                    prop_assert!(u64::from(*share) * each <= room.memory);
                }
            }
            None => prop_assert!(all < u64::from(ranks)),
        }
    }
}
