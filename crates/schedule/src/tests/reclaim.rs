//! Tests of what hosts give up, in simulated time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use snowmelt_types::{Digest, HostName};

use super::{MIB, RECLAIM_AFTER, SECOND, call, name, run, scheduler};
use crate::{CallDemand, Decision, HostRoom, Reclaimed, Scheduler, Ticket};

fn function(host: usize, function: &str) -> Reclaimed {
    Reclaimed::Function(name(host), Digest::of(function))
}

fn image(host: usize, image: &str) -> Reclaimed {
    Reclaimed::Image(name(host), Digest::of(image))
}

fn reclaimed(scheduler: &mut Scheduler, now: Duration) -> Vec<Reclaimed> {
    let mut all = scheduler.reclaim(now);
    all.sort();
    all
}

/// Makes a call run on one host only.
fn on(host: usize, call: CallDemand) -> CallDemand {
    CallDemand { only: Some(name(host)), ..call }
}

fn in_image(function: &str, image: &str) -> CallDemand {
    CallDemand { image: Some(Digest::of(image)), ..call(function, MIB) }
}

#[test]
fn a_host_is_reclaimed_from_a_function_without_calls_but_control_is_not() {
    let mut scheduler = scheduler(2, 100 * MIB, 8);
    let kept_long = |call: CallDemand| CallDemand { idle: 10 * RECLAIM_AFTER, ..call };
    let (here, _) = run(&mut scheduler, on(1, call("f", MIB)), Duration::ZERO);
    let (there, _) = run(&mut scheduler, kept_long(on(2, call("f", MIB))), Duration::ZERO);
    // As long as the call runs, however long that is.
    assert_eq!(scheduler.reclaim(9 * RECLAIM_AFTER), []);
    let end = 9 * RECLAIM_AFTER;
    scheduler.ended(here, Some(1), end);
    scheduler.ended(there, Some(1), end);
    assert!(scheduler.has_functions(&name(2)));
    assert_eq!(scheduler.reclaim(end + RECLAIM_AFTER - SECOND), []);
    assert_eq!(scheduler.reclaim(end + RECLAIM_AFTER), [function(2, "f")]);
    assert!(scheduler.has_functions(&name(1)) && !scheduler.has_functions(&name(2)));
    // It is not counted on any more, and is taken back once.
    let idle = CallDemand { ..call("f", MIB) };
    assert_eq!(scheduler.idle(&idle, end).filter(|(host, _)| **host == name(2)).count(), 0);
    assert_eq!(scheduler.reclaim(end + 2 * RECLAIM_AFTER), []);
    // The next call has it prepared again.
    let again = end + 2 * RECLAIM_AFTER;
    let (ticket, _) = run(&mut scheduler, on(2, call("f", MIB)), again);
    scheduler.refused(ticket, again);
    assert!(scheduler.has_functions(&name(2)), "it may have been prepared before it was refused");
    scheduler.withdraw(ticket, again);
    assert_eq!(scheduler.reclaim(again + RECLAIM_AFTER), [function(2, "f")]);
}

#[test]
fn a_host_leaves_the_tree_of_an_image_that_nothing_there_uses() {
    let mut scheduler = scheduler(3, 100 * MIB, 8);
    for host in 1..=3 {
        scheduler.holds(&name(host), &Digest::of("image"), 0);
    }
    let first = run(&mut scheduler, on(2, in_image("f", "image")), Duration::ZERO).0;
    scheduler.ended(first, Some(1), Duration::ZERO);
    let second = run(&mut scheduler, on(2, in_image("g", "image")), SECOND).0;
    scheduler.ended(second, Some(1), SECOND);
    // A query or a burst of the other host.
    scheduler.uses(&name(3), &Digest::of("image"), 2 * SECOND);
    // Another function needs it still.
    assert_eq!(reclaimed(&mut scheduler, RECLAIM_AFTER), [function(2, "f")]);
    let both = [function(2, "g"), image(2, "image")];
    assert_eq!(reclaimed(&mut scheduler, RECLAIM_AFTER + SECOND), both);
    // The other one runs something, which may use the image.
    scheduler.is_busy(&name(3), RECLAIM_AFTER);
    assert_eq!(reclaimed(&mut scheduler, RECLAIM_AFTER + 10 * SECOND), []);
    assert_eq!(reclaimed(&mut scheduler, 2 * RECLAIM_AFTER), [image(3, "image")]);
}

#[test]
fn what_keeps_prewarmed_instances_stays_until_it_is_removed() {
    let mut scheduler = scheduler(2, 100 * MIB, 8);
    let ticket = run(&mut scheduler, on(2, call("f", MIB)), Duration::ZERO).0;
    scheduler.keep(&name(2), &Digest::of("f"));
    scheduler.ended(ticket, Some(1), Duration::ZERO);
    assert_eq!(scheduler.reclaim(9 * RECLAIM_AFTER), []);
    let running = run(&mut scheduler, on(2, call("f", MIB)), Duration::ZERO).0;
    scheduler.forget(&Digest::of("f"));
    assert!(scheduler.has_functions(&name(2)), "a call of it runs still");
    scheduler.ended(running, None, Duration::ZERO);
    scheduler.forget(&Digest::of("f"));
    assert!(!scheduler.has_functions(&name(2)));
}

#[test]
fn what_an_earlier_control_had_prepared_is_taken_back_as_well() {
    let mut scheduler = scheduler(2, 100 * MIB, 8);
    scheduler.found(&name(2), &Digest::of("f"), 5 * SECOND);
    scheduler.found(&name(7), &Digest::of("f"), 5 * SECOND);
    assert_eq!(scheduler.reclaim(RECLAIM_AFTER), []);
    assert_eq!(scheduler.reclaim(RECLAIM_AFTER + 5 * SECOND), [function(2, "f")]);
    scheduler.found(&name(2), &Digest::of("g"), Duration::ZERO);
    scheduler.remove(&name(2), Duration::ZERO);
    assert_eq!(scheduler.reclaim(9 * RECLAIM_AFTER), []);
}

/// A step of a test.
#[derive(Clone, Debug)]
enum ReclaimStep {
    Call { function: u8, host: usize },
    End(u8),
    Refuse(u8),
    Busy(usize),
    Lose(usize),
    Pass(u16),
}

fn step() -> impl Strategy<Value = ReclaimStep> {
    prop_oneof![
        6 => (0..4_u8, 1..4_usize).prop_map(|(function, host)| {
            ReclaimStep::Call { function, host }
        }),
        5 => any::<u8>().prop_map(ReclaimStep::End),
        1 => any::<u8>().prop_map(ReclaimStep::Refuse),
        1 => (1..4_usize).prop_map(ReclaimStep::Busy),
        1 => (1..4_usize).prop_map(ReclaimStep::Lose),
        5 => (0..700_u16).prop_map(ReclaimStep::Pass),
    ]
}

/// A plain model: what runs on each host, and when each function and image was last used.
#[derive(Default)]
struct ReclaimModel {
    running: BTreeMap<Ticket, (HostName, Digest, Digest)>,
    functions: BTreeMap<(HostName, Digest), (Digest, Duration)>,
    images: BTreeMap<(HostName, Digest), Duration>,
}

impl ReclaimModel {
    fn used(&mut self, (host, function, image): &(HostName, Digest, Digest), now: Duration) {
        self.functions.insert((host.clone(), function.clone()), (image.clone(), now));
    }

    /// Returns and forgets all functions and images that are due.
    fn reclaim(&mut self, now: Duration) -> BTreeSet<Reclaimed> {
        let mut all = BTreeSet::new();
        let runs: BTreeSet<_> =
            self.running.values().map(|(host, function, _)| (host, function)).collect();
        let old = |last: Duration| now - last >= RECLAIM_AFTER;
        self.functions.retain(|(host, function), (_, last)| {
            let stays = *host == name(1) || runs.contains(&(host, function)) || !old(*last);
            if !stays {
                all.insert(Reclaimed::Function(host.clone(), function.clone()));
            }
            stays
        });
        let functions = &self.functions;
        self.images.retain(|(host, image), last| {
            let needed = functions.iter().any(|((on, _), (of, _))| on == host && of == image);
            let stays = *host == name(1) || needed || !old(*last);
            if !stays {
                all.insert(Reclaimed::Image(host.clone(), image.clone()));
            }
            stays
        });
        all
    }
}

/// Puts hosts into trees as if each image had a tree with all hosts that used it.
fn place(scheduler: &mut Scheduler, model: &ReclaimModel) {
    scheduler.forget_trees();
    for (host, image) in model.images.keys() {
        scheduler.holds(host, image, 1);
    }
}

fn apply(
    scheduler: &mut Scheduler,
    model: &mut ReclaimModel,
    step: &ReclaimStep,
    now: &mut Duration,
) {
    let nth = |model: &ReclaimModel, at: u8| {
        let count = model.running.len();
        (count > 0).then(|| *model.running.keys().nth(usize::from(at) % count).unwrap())
    };
    match *step {
        ReclaimStep::Call { function, host } => {
            // Two functions share an image.
            let image = format!("i{}", function / 2);
            let function = format!("f{function}");
            let asked = on(host, in_image(&function, &image));
            let ticket = scheduler.ask(Arc::new(asked), *now, *now + 30 * SECOND);
            let used = (name(host), Digest::of(function), Digest::of(image));
            match scheduler.next(*now) {
                Some(Decision::Run(_, _)) => {
                    model.used(&used, *now);
                    model.images.insert((used.0.clone(), used.2.clone()), *now);
                    model.running.insert(ticket, used);
                }
                // It has as many instances as it may have.
                None => scheduler.withdraw(ticket, *now),
                other => panic!("{other:?}"),
            }
        }
        ReclaimStep::End(at) | ReclaimStep::Refuse(at) => {
            let Some(ticket) = nth(model, at) else { return };
            match step {
                ReclaimStep::Refuse(_) => {
                    scheduler.refused(ticket, *now);
                    scheduler.withdraw(ticket, *now);
                }
                _ => scheduler.ended(ticket, Some(u32::from(at % 3)), *now),
            }
            let used = model.running.remove(&ticket).unwrap();
            model.used(&used, *now);
        }
        ReclaimStep::Busy(host) => {
            scheduler.is_busy(&name(host), *now);
            let images = model.images.iter_mut().filter(|((on, _), _)| *on == name(host));
            images.for_each(|(_, last)| *last = *now);
        }
        ReclaimStep::Lose(host) => {
            let host = name(host);
            scheduler.remove(&host, *now);
            scheduler.report(
                &host,
                HostRoom { memory: 1 << 40, cpu_millis: 1000, ..HostRoom::default() },
            );
            model.running.retain(|_, (on, ..)| *on != host);
            model.functions.retain(|(on, _), _| *on != host);
            model.images.retain(|(on, _), _| *on != host);
        }
        ReclaimStep::Pass(seconds) => *now += SECOND * u32::from(seconds),
    }
}

proptest! {
    #[test]
    fn all_that_is_unused_is_taken_back_once_and_nothing_else(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut scheduler = scheduler(3, 1 << 40, 1);
        let mut model = ReclaimModel::default();
        let mut now = Duration::ZERO;
        for step in &steps {
            // Each host has reported, so that none counts as full.
            for host in 1..=3 {
                let room = HostRoom { memory: 1 << 40, cpu_millis: 1000, ..HostRoom::default() };
                scheduler.report(&name(host), room);
            }
            apply(&mut scheduler, &mut model, step, &mut now);
            place(&mut scheduler, &model);
            scheduler.sweep(now);
            let taken = scheduler.reclaim(now);
            prop_assert_eq!(taken.len(), taken.iter().collect::<BTreeSet<_>>().len());
            prop_assert_eq!(taken.into_iter().collect::<BTreeSet<_>>(), model.reclaim(now));
            for host in 1..=3 {
                let has_any = model.functions.keys().any(|(on, _)| *on == name(host));
                prop_assert_eq!(scheduler.has_functions(&name(host)), has_any);
            }
        }
        for (ticket, _) in std::mem::take(&mut model.running) {
            scheduler.ended(ticket, None, now);
        }
        place(&mut scheduler, &model);
        scheduler.reclaim(now + RECLAIM_AFTER);
        prop_assert!(!scheduler.has_functions(&name(2)) && !scheduler.has_functions(&name(3)));
    }
}
