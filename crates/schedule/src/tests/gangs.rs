//! Gangs: all ranks or none, beside calls, beside a plain model, and no starvation.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use snowmelt_types::{Digest, HostName};

use super::{SECOND, call, decided, name, of, run, scheduler, waits};
use crate::{Call, Decision, Gang, GangRoom, HostRoom, Parts, Scheduler, Ticket};

const OVERCOMMIT: u32 = 2;
const ROOM: HostRoom =
    HostRoom { memory: 100, cpu_millis: 2000, ranks: 50, overcommit: OVERCOMMIT };

/// Hosts that have 100 bytes for instances of calls, or 50 for ranks.
fn hosts(count: usize) -> Scheduler {
    let mut made = scheduler(0, 0, 0);
    (1..=count).for_each(|number| made.report(&name(number), ROOM));
    made
}

fn gang(ranks: u32, memory: u64) -> Gang {
    Gang {
        tenant: "t".parse().unwrap(),
        image: None,
        ranks,
        memory,
        cpu_millis: 1000,
        most_hosts: None,
        only: None,
    }
}

fn of_tenant(tenant: &str, gang: Gang) -> Gang {
    Gang { tenant: tenant.parse().unwrap(), ..gang }
}

fn ask(scheduler: &mut Scheduler, gang: Gang, now: Duration) -> Ticket {
    scheduler.ask_gang(Arc::new(gang), now, now + 300 * SECOND)
}

/// Asks for a gang, which starts at once.
fn start(scheduler: &mut Scheduler, gang: Gang, now: Duration) -> (Ticket, Parts) {
    let ticket = ask(scheduler, gang, now);
    match scheduler.next(now) {
        Some(Decision::Start(started, parts)) if started == ticket => (ticket, parts),
        other => panic!("{other:?}"),
    }
}

fn waiting(scheduler: &mut Scheduler, gang: Gang, now: Duration) -> Ticket {
    let ticket = ask(scheduler, gang, now);
    assert_eq!(decided(scheduler, now), []);
    ticket
}

#[test]
fn a_gang_starts_as_a_whole_and_waits_for_calls_and_other_gangs() {
    let (mut scheduler, now) = (hosts(2), Duration::ZERO);
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
    assert_eq!(scheduler.gang_room(&all), GangRoom { hosts: 2, free: 89, most: 100 });
    scheduler.ended(long, None, SECOND);
    let expected = vec![(name(1), 2), (name(2), 2)];
    assert_eq!(decided(&mut scheduler, SECOND), [Decision::Start(third, expected)]);
}

#[test]
fn a_gang_that_no_hosts_could_ever_hold_is_refused_unless_some_may_come() {
    let (mut scheduler, now) = (hosts(2), Duration::ZERO);
    start(&mut scheduler, gang(2, 50), now);
    for too_much in [gang(5, 20), Gang { most_hosts: Some(1), ..gang(3, 20) }] {
        let asked = ask(&mut scheduler, too_much, now);
        assert_eq!(decided(&mut scheduler, now), [Decision::Refused(asked)]);
    }
    scheduler.set_may_grow(true);
    let large = waiting(&mut scheduler, gang(5, 20), now);
    assert_eq!(scheduler.lacking(now), 0, "others may end in a moment");
    // Nothing is free, and each host holds two.
    assert_eq!(scheduler.lacking(SECOND), 3);
    let bound = ask(&mut scheduler, Gang { only: Some(name(1)), ..gang(3, 20) }, now);
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
fn a_gang_expires_or_is_withdrawn_and_leaves_nothing() {
    let (mut scheduler, now) = (hosts(1), Duration::ZERO);
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
    let (mut scheduler, now) = (hosts(4), Duration::ZERO);
    let image = Digest::of("image");
    let on = |most, ranks| Gang {
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
    start(&mut scheduler, Gang { only: Some(name(1)), ..gang(4, 10) }, now);
    assert_eq!(start(&mut scheduler, on(1, 5), now).1, [(name(2), 5)]);
}

#[test]
fn a_gang_of_an_earlier_control_is_counted_when_its_hosts_come() {
    let (mut scheduler, now) = (hosts(1), Duration::ZERO);
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
    let (mut scheduler, now) = (hosts(2), Duration::ZERO);
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
    let (mut scheduler, now) = (hosts(1), Duration::ZERO);
    let (small, _) = run(&mut scheduler, call("small", 20), now);
    let large = waits(&mut scheduler, call("large", 100), now);
    let all = waiting(&mut scheduler, gang(1, 50), SECOND);
    let late = 20 * SECOND;
    scheduler.ended(small, Some(0), late);
    assert_eq!(decided(&mut scheduler, late), [Decision::Run(large, name(1))]);
    scheduler.ended(large, Some(0), late);
    assert_eq!(decided(&mut scheduler, late), [Decision::Start(all, vec![(name(1), 1)])]);
}

/// What a test does to the scheduler.
#[derive(Clone, Debug)]
enum Step {
    Call { tenant: u8, memory: u8 },
    Gang { tenant: u8, ranks: u8, memory: u8, most_hosts: Option<u32> },
    End(u8),
    Withdraw(u8),
    Remove(u8),
    Report(u8),
    Drain(u8, bool),
    Pass(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let most_hosts = prop::option::weighted(0.3, 1..4_u32);
    let gang = (0..3_u8, 1..8_u8, 1..40_u8, most_hosts);
    prop_oneof![
        4 => (0..3_u8, 1..60_u8).prop_map(|(tenant, memory)| Step::Call { tenant, memory }),
        5 => gang.prop_map(|(tenant, ranks, memory, most_hosts)| {
            Step::Gang { tenant, ranks, memory, most_hosts }
        }),
        6 => any::<u8>().prop_map(Step::End),
        1 => any::<u8>().prop_map(Step::Withdraw),
        1 => (1..5_u8).prop_map(Step::Remove),
        2 => (1..5_u8).prop_map(Step::Report),
        1 => ((1..5_u8), any::<bool>()).prop_map(|(host, is)| Step::Drain(host, is)),
        2 => (0..20_u8).prop_map(Step::Pass),
    ]
}

/// A plain model: what runs where, and what waits.
#[derive(Default)]
struct Model {
    calls: HashMap<Ticket, (Arc<Call>, Option<HostName>)>,
    gangs: HashMap<Ticket, (Arc<Gang>, Option<Parts>)>,
    drained: BTreeSet<HostName>,
}

impl Model {
    fn take(&mut self, decision: Decision) {
        match decision {
            Decision::Run(ticket, host) => self.calls.get_mut(&ticket).unwrap().1 = Some(host),
            Decision::Start(ticket, parts) => {
                let (gang, held) = self.gangs.get_mut(&ticket).unwrap();
                assert_eq!(parts.iter().map(|(_, ranks)| ranks).sum::<u32>(), gang.ranks);
                assert!(parts.len() <= gang.most_hosts.unwrap_or(u32::MAX) as usize);
                let on: BTreeSet<_> = parts.iter().map(|(host, _)| host.clone()).collect();
                assert!(on.len() == parts.len() && on.is_disjoint(&self.drained), "{parts:?}");
                assert!(held.replace(parts).is_none(), "it starts once");
            }
            Decision::Expired(ticket) | Decision::Refused(ticket) => {
                let was = self.calls.remove(&ticket).map(|it| it.1.is_none());
                let was = was.or(self.gangs.remove(&ticket).map(|it| it.1.is_none()));
                assert_eq!(was, Some(true), "it waits");
            }
        }
    }

    /// Bytes of instances and of ranks on a host.
    fn on(&self, host: &HostName) -> (u64, u64) {
        let calls = self.calls.values().filter(|(_, on)| on.as_ref() == Some(host));
        let gangs = self.gangs.values().flat_map(|(gang, parts)| {
            let here = parts.iter().flatten().filter(|(on, _)| on == host);
            here.map(|(_, ranks)| u64::from(*ranks) * gang.memory)
        });
        (calls.map(|(call, _)| call.memory).sum(), gangs.sum())
    }

    fn waiting(&self) -> usize {
        let calls = self.calls.values().filter(|(_, on)| on.is_none()).count();
        calls + self.gangs.values().filter(|(_, parts)| parts.is_none()).count()
    }

    fn nth(&self, at: u8, runs: bool) -> Option<Ticket> {
        let calls = self.calls.iter().filter(|(_, it)| it.1.is_some() == runs).map(|it| *it.0);
        let gangs = self.gangs.iter().filter(|(_, it)| it.1.is_some() == runs).map(|it| *it.0);
        let mut all: Vec<_> = calls.chain(gangs).collect();
        all.sort_unstable();
        (!all.is_empty()).then(|| all[usize::from(at) % all.len()])
    }

    fn forget(&mut self, ticket: Ticket) {
        self.calls.remove(&ticket);
        self.gangs.remove(&ticket);
    }
}

fn apply(scheduler: &mut Scheduler, model: &mut Model, step: Step, now: &mut Duration) {
    match step {
        Step::Call { tenant, memory } => {
            // Each has a function of its own, so that no instances are shared.
            let function = format!("{tenant} {memory} {}", model.calls.len());
            let made = Arc::new(of(&format!("t{tenant}"), call(&function, memory.into())));
            let ticket = scheduler.ask(Arc::clone(&made), *now, *now + 30 * SECOND);
            model.calls.insert(ticket, (made, None));
        }
        Step::Gang { tenant, ranks, memory, most_hosts } => {
            let made = Gang { most_hosts, ..gang(ranks.into(), memory.into()) };
            let made = Arc::new(of_tenant(&format!("t{tenant}"), made));
            let ticket = scheduler.ask_gang(Arc::clone(&made), *now, *now + 60 * SECOND);
            model.gangs.insert(ticket, (made, None));
        }
        Step::End(at) => {
            if let Some(ticket) = model.nth(at, true) {
                scheduler.ended(ticket, Some(0), *now);
                model.forget(ticket);
            }
        }
        Step::Withdraw(at) => {
            if let Some(ticket) = model.nth(at, false) {
                scheduler.withdraw(ticket, *now);
                model.forget(ticket);
            }
        }
        Step::Remove(host) => {
            let host = name(host.into());
            scheduler.remove(&host, *now);
            model.drained.remove(&host);
            model.calls.retain(|_, (_, on)| on.as_ref() != Some(&host));
        }
        Step::Report(host) => scheduler.report(&name(host.into()), ROOM),
        Step::Drain(host, is_drained) => {
            let host = name(host.into());
            // One that is not there is not drained when it comes.
            if scheduler.memory(&host).is_some() {
                scheduler.drain(&host, is_drained);
                match is_drained {
                    true => model.drained.insert(host),
                    false => model.drained.remove(&host),
                };
            }
        }
        Step::Pass(seconds) => *now += SECOND * u32::from(seconds),
    }
}

proptest! {
    #[test]
    fn gangs_start_as_a_whole_within_the_memory_of_hosts_beside_calls(
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let (mut scheduler, mut model, mut now) = (hosts(3), Model::default(), Duration::ZERO);
        for step in steps {
            apply(&mut scheduler, &mut model, step, &mut now);
            decided(&mut scheduler, now).into_iter().for_each(|decision| model.take(decision));
            prop_assert_eq!(scheduler.waiting(), model.waiting());
            for host in (1..5).map(name) {
                let (calls, ranks) = model.on(&host);
                prop_assert!(calls + ranks * u64::from(OVERCOMMIT) <= 100, "{calls} {ranks}");
                let known = scheduler.memory(&host).map(|(taken, _)| taken);
                prop_assert!(known.is_none_or(|known| known == calls));
            }
        }
        // Whatever waits runs, is refused or expires; what has ended leaves nothing.
        now += 120 * SECOND;
        decided(&mut scheduler, now).into_iter().for_each(|decision| model.take(decision));
        prop_assert_eq!(scheduler.waiting(), 0);
        while let Some(ticket) = model.nth(0, true) {
            scheduler.ended(ticket, Some(0), now);
            model.forget(ticket);
        }
        for host in (1..5).map(name) {
            scheduler.report(&host, ROOM);
            scheduler.drain(&host, false);
        }
        let room = scheduler.gang_room(&gang(1, 1));
        prop_assert_eq!(room, GangRoom { hosts: 4, free: 200, most: 200 });
    }

    #[test]
    fn no_gang_starves_behind_calls_and_smaller_gangs(
        wanted in (1..6_u32, 20..50_u64),
        others in prop::collection::vec((any::<bool>(), 5..40_u8, 0..3_u8, 1..5_u32), 200),
    ) {
        let (mut scheduler, mut now) = (hosts(3), Duration::ZERO);
        let mut ends: VecDeque<(Duration, Ticket)> = VecDeque::new();
        let mut asked = None;
        let mut started = None;
        for (at, (is_call, memory, tenant, seconds)) in others.into_iter().enumerate() {
            now += SECOND / 4;
            let (due, later) = ends.into_iter().partition::<Vec<_>, _>(|(end, _)| *end <= now);
            ends = later.into();
            due.iter().for_each(|(_, ticket)| scheduler.ended(*ticket, Some(0), now));
            let tenant = format!("t{tenant}");
            if is_call {
                let made = of(&tenant, call(&format!("f{at}"), u64::from(memory) * 2));
                scheduler.ask(Arc::new(made), now, now + 30 * SECOND);
            } else {
                ask(&mut scheduler, of_tenant(&tenant, gang(1, memory.into())), now);
            }
            if at == 40 {
                let (ranks, memory) = wanted;
                let made = of_tenant("wanted", gang(ranks.min(3), memory));
                asked = Some((ask(&mut scheduler, made, now), now));
            }
            for decision in decided(&mut scheduler, now) {
                match decision {
                    Decision::Run(ticket, _) | Decision::Start(ticket, _) => {
                        ends.push_back((now + SECOND * seconds, ticket));
                        if asked.is_some_and(|(asked, _)| asked == ticket) {
                            started = Some(now);
                        }
                    }
                    Decision::Expired(_) | Decision::Refused(_) => {}
                }
            }
        }
        let (_, since) = asked.unwrap();
        // The calls that were there before expire after thirty seconds; then the gangs end that began
        // before it was starved, and then the calls that began before its share was free of those.
        let started = started.map(|at| at - since);
        prop_assert!(started.is_some_and(|after| after <= 38 * SECOND), "{started:?}");
    }
}
