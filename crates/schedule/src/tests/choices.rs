//! Compares the choice of a host by orders with the choice by a look at all hosts, over any
//! sequence of requests.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use snowmelt_types::Digest;

use super::gangs::gang;
use super::linear;
use super::tasks::of_whom;
use super::{MIB, SECOND, call, decided, name, run};
use crate::{CallDemand, Decision, HostRoom, Scheduler, SchedulerPolicy, Ticket};

/// The number of functions in a test, some of which share an image.
const FUNCTIONS: u8 = 6;

/// The number of hosts that a test may add.
const HOSTS: usize = 8;

/// A step of a test: a change of the scheduler.
#[derive(Clone, Debug)]
enum ChoiceStep {
    Ask(u8),
    End(u8, Option<u32>),
    Refuse(u8),
    Remove(usize),
    Report(usize, u8, u8),
    Drain(usize, bool),
    Trees(Vec<(usize, u8, u32)>, Vec<(usize, u32)>),
    Gang(u8),
    Task(usize, u8),
    Sweep,
    Reclaim,
    Pass(u16),
}

fn step() -> impl Strategy<Value = ChoiceStep> {
    let host = || 1..=HOSTS;
    let depths = prop::collection::vec((host(), 0..3_u8, 0..3_u32), 0..10);
    let senders = prop::collection::vec((host(), 0..3_u32), 0..6);
    prop_oneof![
        12 => (0..FUNCTIONS).prop_map(ChoiceStep::Ask),
        8 => (any::<u8>(), prop::option::of(0..4_u32)).prop_map(|(at, count)| {
            ChoiceStep::End(at, count)
        }),
        1 => any::<u8>().prop_map(ChoiceStep::Refuse),
        1 => host().prop_map(ChoiceStep::Remove),
        3 => (host(), 1..5_u8, 0..5_u8).prop_map(|(host, memory, cores)| {
            ChoiceStep::Report(host, memory, cores)
        }),
        1 => (host(), any::<bool>()).prop_map(|(host, is)| ChoiceStep::Drain(host, is)),
        2 => (depths, senders).prop_map(|(depths, senders)| ChoiceStep::Trees(depths, senders)),
        1 => any::<u8>().prop_map(ChoiceStep::Gang),
        1 => (host(), 0..20_u8).prop_map(|(host, memory)| ChoiceStep::Task(host, memory)),
        1 => Just(ChoiceStep::Sweep),
        1 => Just(ChoiceStep::Reclaim),
        3 => (0..600_u16).prop_map(ChoiceStep::Pass),
    ]
}

/// Makes a function by its number, which decides about its size, image, shared instances and host.
fn function(number: u8) -> CallDemand {
    let image = (number > 0).then(|| Digest::of(format!("image {}", number / 2)));
    CallDemand {
        image,
        memory: [10, 25, 40, 10, 60, 150][usize::from(number)],
        cpu_millis: [1000, 300, 1000, 700, 2000, 1000][usize::from(number)],
        concurrency: if number % 3 == 1 { 3 } else { 1 },
        idle: SECOND * 60 * u32::from(number % 2 + 1),
        only: (number == 3).then(|| name(2)),
        near_first: number > 3,
        ..call(&format!("f{number}"), 1)
    }
}

fn room(memory: u8, cores: u8) -> HostRoom {
    let memory = u64::from(memory) * 40;
    let whole = memory * 2;
    HostRoom {
        memory,
        cpu_millis: u64::from(cores) * 700,
        ranks: whole,
        tasks: whole,
        sandboxes: whole,
        overcommit: 2,
    }
}

fn apply(
    scheduler: &mut Scheduler,
    running: &mut Vec<Ticket>,
    step: ChoiceStep,
    now: &mut Duration,
) {
    let nth =
        |running: &[Ticket], at: u8| (!running.is_empty()).then(|| usize::from(at) % running.len());
    match step {
        ChoiceStep::Ask(number) => {
            scheduler.ask(Arc::new(function(number)), *now, *now + 900 * SECOND);
        }
        ChoiceStep::End(at, count) => {
            if let Some(at) = nth(running, at) {
                scheduler.ended(running.swap_remove(at), count, *now);
            }
        }
        ChoiceStep::Refuse(at) => {
            if let Some(at) = nth(running, at) {
                scheduler.refused(running.swap_remove(at), *now);
            }
        }
        ChoiceStep::Remove(host) => scheduler.remove(&name(host), *now),
        ChoiceStep::Report(host, memory, cores) => {
            scheduler.report(&name(host), room(memory, cores))
        }
        ChoiceStep::Drain(host, is_drained) => scheduler.drain(&name(host), is_drained),
        ChoiceStep::Trees(depths, senders) => {
            scheduler.forget_trees();
            for (host, image, depth) in depths {
                scheduler.holds(&name(host), &Digest::of(format!("image {image}")), depth);
            }
            senders.into_iter().for_each(|(host, trees)| scheduler.sends_in(&name(host), trees));
        }
        ChoiceStep::Gang(ranks) => {
            let made = gang(u32::from(ranks % 4) + 1, 15);
            scheduler.ask_gang(Arc::new(made), *now, *now + 60 * SECOND);
        }
        ChoiceStep::Task(host, memory) => {
            let task = of_whom("t", memory.into());
            running.extend(scheduler.start_task(task, &name(host), *now));
        }
        ChoiceStep::Sweep => scheduler.sweep(*now),
        ChoiceStep::Reclaim => drop(scheduler.reclaim(*now)),
        ChoiceStep::Pass(seconds) => *now += SECOND * u32::from(seconds),
    }
}

/// Checks the choice for each function, alone and beside others that room may be kept for.
fn agree(scheduler: &mut Scheduler, now: Duration) -> Result<(), TestCaseError> {
    for number in 0..FUNCTIONS {
        let call = function(number);
        for kept in [None, Some(0), Some(2), Some(5)] {
            let kept = kept.map(function);
            let expected = linear::choose(scheduler, &call, kept.as_ref(), now);
            let found = scheduler.host_for(&call, kept.as_ref(), now);
            prop_assert_eq!(found, expected, "{} beside {:?}", number, kept);
        }
        let could = linear::could_ever_start(scheduler, &call);
        prop_assert_eq!(scheduler.could_ever_start(&call), could);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn the_host_is_the_one_that_a_look_at_all_hosts_finds(
        steps in prop::collection::vec(step(), 1..80),
        (most, near, few) in (1..4_u32, prop::option::of(1..=HOSTS), 0..4_usize),
    ) {
        let mut scheduler = Scheduler::new(SchedulerPolicy {
            instances_per_host: most,
            near: near.map(name),
            starved_after: 10 * SECOND,
            reclaim_after: 900 * SECOND,
        });
        // Of most choices, so few hosts are not all.
        scheduler.few = few;
        for host in 1..=4 {
            scheduler.report(&name(host), room(3, 3));
        }
        let mut now = Duration::ZERO;
        let mut running = Vec::new();
        for step in steps {
            apply(&mut scheduler, &mut running, step, &mut now);
            agree(&mut scheduler, now)?;
            for decision in decided(&mut scheduler, now) {
                if let Decision::Run(ticket, _) | Decision::Start(ticket, _) = decision {
                    running.push(ticket);
                }
            }
        }
        agree(&mut scheduler, now)?;
    }
}

/// The calls once left their tickets: after the end of one call, the whole queue was looked
/// through.
#[test]
fn calls_one_after_another_leave_nothing() {
    let mut scheduler = super::scheduler(2, 1024 * MIB, 1);
    for second in 0..100 {
        let now = second * SECOND;
        let (ticket, _) = run(&mut scheduler, call("f", MIB), now);
        assert!(decided(&mut scheduler, now).is_empty());
        scheduler.ended(ticket, Some(1), now);
    }
    assert!(scheduler.new.is_empty(), "{:?}", scheduler.new);
}
