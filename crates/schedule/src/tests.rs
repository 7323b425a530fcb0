//! Decisions, and invariants after any sequence of requests.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use snowmelt_types::{Digest, HostName};

use crate::{Call, Decision, HostRoom, Policy, Scheduler, Spare, Ticket, shares};

const SECOND: Duration = Duration::from_secs(1);
const MIB: u64 = 1 << 20;

fn name(number: usize) -> HostName {
    format!("host-{number}").try_into().unwrap()
}

fn scheduler(hosts: usize, memory: u64, cores: u64) -> Scheduler {
    let policy = Policy { instances_per_host: 20, near: Some(name(1)), starved_after: 15 * SECOND };
    let mut made = Scheduler::new(policy);
    for number in 1..=hosts {
        made.report(&name(number), HostRoom { memory, cpu_millis: cores * 1000 });
    }
    made
}

fn call(function: &str, memory: u64) -> Call {
    Call {
        tenant: "t".parse().unwrap(),
        function: Digest::of(function),
        image: None,
        memory,
        cpu_millis: 1000,
        concurrency: 1,
        idle: 60 * SECOND,
        only: None,
    }
}

fn of(tenant: &str, call: Call) -> Call {
    Call { tenant: tenant.parse().unwrap(), ..call }
}

/// All decisions now.
fn decided(scheduler: &mut Scheduler, now: Duration) -> Vec<Decision> {
    std::iter::from_fn(|| scheduler.next(now)).collect()
}

/// Asks for a call, which runs at once.
fn run(scheduler: &mut Scheduler, call: Call, now: Duration) -> (Ticket, HostName) {
    let ticket = scheduler.ask(Arc::new(call), now, now + 30 * SECOND);
    match scheduler.next(now) {
        Some(Decision::Run(run, host)) if run == ticket => (ticket, host),
        other => panic!("{other:?}"),
    }
}

fn waits(scheduler: &mut Scheduler, call: Call, now: Duration) -> Ticket {
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
fn an_idle_instance_whose_host_is_busy_comes_after_a_free_core() {
    let mut scheduler = scheduler(2, 1024 * MIB, 1);
    let image = Digest::of("image");
    let with_image = |function| Call { image: Some(image.clone()), ..call(function, MIB) };
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
    let with_image = |function| Call { image: Some(image.clone()), ..call(function, MIB) };
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
    let shared = || Call { concurrency: 3, ..call("f", 10 * MIB) };
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
    scheduler.withdraw(large, 17 * SECOND);
    scheduler.report(&name(1), HostRoom { memory: 100 * MIB, cpu_millis: 8000 });
    assert_eq!(decided(&mut scheduler, 17 * SECOND), [Decision::Run(late, name(1))]);
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
    scheduler.report(&first, HostRoom { memory: 100 * MIB, cpu_millis: 1000 });
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
    scheduler.report(&host, HostRoom { memory: 100 * MIB, cpu_millis: 2000 });
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

/// What a test does to the scheduler.
#[derive(Clone, Debug)]
enum Step {
    Ask { tenant: u8, function: u8, memory: u8, concurrency: u8 },
    End(u8),
    Withdraw(u8),
    Refuse(u8),
    Remove(u8),
    Report(u8),
    Drain(u8, bool),
    Pass(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..3_u8, 0..4_u8, 1..30_u8, 1..4_u8).prop_map(|(tenant, function, memory, concurrency)| {
            Step::Ask { tenant, function, memory, concurrency }
        }),
        5 => any::<u8>().prop_map(Step::End),
        1 => any::<u8>().prop_map(Step::Withdraw),
        1 => any::<u8>().prop_map(Step::Refuse),
        1 => (1..6_u8).prop_map(Step::Remove),
        2 => (1..6_u8).prop_map(Step::Report),
        1 => ((1..6_u8), any::<bool>()).prop_map(|(host, is)| Step::Drain(host, is)),
        2 => (0..20_u8).prop_map(Step::Pass),
    ]
}

/// A plain model: which call runs where, and what it takes there.
#[derive(Default)]
struct Model {
    running: HashMap<Ticket, (Arc<Call>, HostName)>,
    waiting: HashMap<Ticket, Arc<Call>>,
}

impl Model {
    fn take(&mut self, decision: &Decision) {
        match decision {
            Decision::Run(ticket, host) => {
                let call = self.waiting.remove(ticket).expect("it waits");
                self.running.insert(*ticket, (call, host.clone()));
            }
            Decision::Expired(ticket) | Decision::Refused(ticket) => {
                self.waiting.remove(ticket).expect("it waits");
            }
        }
    }

    /// Instances of each function on a host, and their memory.
    fn on(&self, host: &HostName) -> (HashMap<Digest, u32>, u64) {
        let mut calls: HashMap<Digest, (u32, Arc<Call>)> = HashMap::new();
        for (call, _) in self.running.values().filter(|(_, on)| on == host) {
            let entry = calls.entry(call.function.clone()).or_insert((0, Arc::clone(call)));
            entry.0 += 1;
        }
        let busy = |(calls, call): &(u32, Arc<Call>)| calls.div_ceil(call.concurrency);
        let memory = calls.values().map(|it| u64::from(busy(it)) * it.1.memory).sum();
        (calls.iter().map(|(function, it)| (function.clone(), busy(it))).collect(), memory)
    }

    fn nth(&self, at: u8) -> Option<Ticket> {
        let mut tickets: Vec<_> = self.running.keys().copied().collect();
        tickets.sort_unstable();
        (!tickets.is_empty()).then(|| tickets[usize::from(at) % tickets.len()])
    }
}

fn apply(scheduler: &mut Scheduler, model: &mut Model, step: Step, now: &mut Duration) {
    let room = HostRoom { memory: 100, cpu_millis: 2000 };
    match step {
        Step::Ask { tenant, function, memory, concurrency } => {
            // A function is its limits too.
            let named = format!("{tenant}-{function}-{memory}-{concurrency}");
            let call = of(&format!("t{tenant}"), call(&named, memory.into()));
            let call = Arc::new(Call { concurrency: concurrency.into(), ..call });
            let ticket = scheduler.ask(Arc::clone(&call), *now, *now + 30 * SECOND);
            model.waiting.insert(ticket, call);
        }
        Step::End(at) => {
            if let Some(ticket) = model.nth(at) {
                scheduler.ended(ticket, Some(u32::from(at % 3)), *now);
                model.running.remove(&ticket);
            }
        }
        Step::Withdraw(at) => {
            let waiting = model.waiting.keys().copied().min();
            if let Some(ticket) = waiting.or_else(|| model.nth(at)) {
                scheduler.withdraw(ticket, *now);
                model.waiting.remove(&ticket);
                model.running.remove(&ticket);
            }
        }
        Step::Refuse(at) => {
            if let Some(ticket) = model.nth(at) {
                scheduler.refused(ticket, *now);
                let (call, _) = model.running.remove(&ticket).unwrap();
                model.waiting.insert(ticket, call);
            }
        }
        Step::Remove(host) => {
            let host = name(host.into());
            scheduler.remove(&host, *now);
            model.running.retain(|_, (_, on)| *on != host);
        }
        Step::Report(host) => scheduler.report(&name(host.into()), room),
        Step::Drain(host, is_drained) => scheduler.drain(&name(host.into()), is_drained),
        Step::Pass(seconds) => *now += SECOND * u32::from(seconds),
    }
}

proptest! {
    #[test]
    fn no_host_has_more_than_it_has_room_for(steps in prop::collection::vec(step(), 1..200)) {
        let (mut scheduler, mut model) = (scheduler(3, 100, 2), Model::default());
        let mut now = Duration::ZERO;
        for step in steps {
            apply(&mut scheduler, &mut model, step, &mut now);
            decided(&mut scheduler, now).iter().for_each(|decision| model.take(decision));
            prop_assert_eq!(scheduler.waiting(), model.waiting.len());
            for number in 1..6 {
                let (instances, memory) = model.on(&name(number));
                prop_assert!(memory <= 100, "{number}: {memory}");
                prop_assert!(instances.values().all(|count| *count <= 20));
                if let Some((taken, _)) = scheduler.memory(&name(number)) {
                    prop_assert_eq!(taken, memory);
                }
            }
        }
        // Whatever waits runs or expires.
        for host in 1..6 {
            scheduler.remove(&name(host), now);
        }
        now += 60 * SECOND;
        decided(&mut scheduler, now);
        prop_assert_eq!(scheduler.waiting(), 0);
    }

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
