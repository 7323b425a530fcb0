//! Gangs and tasks of queries compared with a plain model, over any sequence of requests, and under
//! a flood of other requests.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use snowmelt_types::HostName;

use super::gangs::{OVERCOMMIT, ROOM, ask, gang, hosts, of_tenant};
use super::tasks::{of_whom, wish};
use super::{SECOND, call, decided, name, of};
use crate::{CallDemand, Decision, GangDemand, GangRanks, GangRoom, Scheduler, TaskDemand, Ticket};

/// A step of a test: a request to the scheduler.
#[derive(Clone, Debug)]
enum GangStep {
    Call {
        tenant: u8,
        memory: u8,
    },
    Gang {
        tenant: u8,
        ranks: u8,
        memory: u8,
        most_hosts: Option<u32>,
    },
    /// A task that starts on this host at once or, with `waits`, waits in the queue for one of two
    /// hosts.
    Task {
        tenant: u8,
        memory: u8,
        host: u8,
        waits: bool,
    },
    End(u8),
    Refuse(u8),
    Withdraw(u8),
    Remove(u8),
    Report(u8),
    Drain(u8, bool),
    Pass(u8),
}

fn step() -> impl Strategy<Value = GangStep> {
    let most_hosts = prop::option::weighted(0.3, 1..4_u32);
    let gang = (0..3_u8, 1..8_u8, 1..40_u8, most_hosts);
    prop_oneof![
        4 => (0..3_u8, 1..60_u8).prop_map(|(tenant, memory)| GangStep::Call { tenant, memory }),
        5 => gang.prop_map(|(tenant, ranks, memory, most_hosts)| {
            GangStep::Gang { tenant, ranks, memory, most_hosts }
        }),
        4 => (0..3_u8, 1..40_u8, 1..4_u8, any::<bool>()).prop_map(|(tenant, memory, host, waits)| {
            GangStep::Task { tenant, memory, host, waits }
        }),
        6 => any::<u8>().prop_map(GangStep::End),
        1 => any::<u8>().prop_map(GangStep::Refuse),
        1 => any::<u8>().prop_map(GangStep::Withdraw),
        1 => (1..5_u8).prop_map(GangStep::Remove),
        2 => (1..5_u8).prop_map(GangStep::Report),
        1 => ((1..5_u8), any::<bool>()).prop_map(|(host, is)| GangStep::Drain(host, is)),
        2 => (0..20_u8).prop_map(GangStep::Pass),
    ]
}

/// A plain model: the requests that run, with their hosts, and the requests that wait.
#[derive(Default)]
struct GangQueueModel {
    calls: HashMap<Ticket, (Arc<CallDemand>, Option<HostName>)>,
    gangs: HashMap<Ticket, (Arc<GangDemand>, Option<GangRanks>)>,
    tasks: HashMap<Ticket, (Arc<TaskDemand>, Option<HostName>)>,
    drained: BTreeSet<HostName>,
}

impl GangQueueModel {
    fn take(&mut self, decision: Decision) {
        match decision {
            Decision::Run(ticket, host) => {
                assert!(!self.drained.contains(&host), "{host}");
                let call = self.calls.get_mut(&ticket).map(|(_, on)| on);
                let held = call.or(self.tasks.get_mut(&ticket).map(|(_, on)| on)).unwrap();
                assert!(held.replace(host).is_none(), "it runs once");
            }
            Decision::Start(ticket, parts) => {
                let (gang, held) = self.gangs.get_mut(&ticket).unwrap();
                assert_eq!(parts.iter().map(|(_, ranks)| ranks).sum::<u32>(), gang.ranks);
                assert!(parts.len() <= gang.most_hosts.unwrap_or(u32::MAX) as usize);
                let on: BTreeSet<_> = parts.iter().map(|(host, _)| host.clone()).collect();
                assert!(on.len() == parts.len() && on.is_disjoint(&self.drained), "{parts:?}");
                assert!(held.replace(parts).is_none(), "it starts once");
            }
            Decision::Expired(ticket) | Decision::Refused(ticket) => {
                let was = self.calls.remove(&ticket).map(|call| call.1.is_none());
                let was = was.or(self.gangs.remove(&ticket).map(|gang| gang.1.is_none()));
                assert_eq!(was, Some(true), "it waits");
            }
        }
    }

    /// The bytes of instances on a host, and those of ranks and tasks.
    fn on(&self, host: &HostName) -> (u64, u64) {
        let calls = self.calls.values().filter(|(_, on)| on.as_ref() == Some(host));
        let gangs = self.gangs.values().flat_map(|(gang, parts)| {
            let here = parts.iter().flatten().filter(|(on, _)| on == host);
            here.map(|(_, ranks)| u64::from(*ranks) * gang.memory)
        });
        let tasks = self.tasks.values().filter(|(_, on)| on.as_ref() == Some(host));
        let whole = gangs.sum::<u64>() + tasks.map(|(task, _)| task.memory).sum::<u64>();
        (calls.map(|(call, _)| call.memory).sum(), whole)
    }

    fn waiting(&self) -> usize {
        let calls = self.calls.values().filter(|(_, on)| on.is_none()).count();
        let tasks = self.tasks.values().filter(|(_, on)| on.is_none()).count();
        calls + tasks + self.gangs.values().filter(|(_, parts)| parts.is_none()).count()
    }

    fn nth(&self, at: u8, runs: bool) -> Option<Ticket> {
        let calls = self.calls.iter().filter(|(_, it)| it.1.is_some() == runs).map(|call| *call.0);
        let gangs = self.gangs.iter().filter(|(_, it)| it.1.is_some() == runs).map(|gang| *gang.0);
        let tasks = self.tasks.iter().filter(|(_, it)| it.1.is_some() == runs).map(|task| *task.0);
        let mut all: Vec<_> = calls.chain(gangs).chain(tasks).collect();
        all.sort_unstable();
        (!all.is_empty()).then(|| all[usize::from(at) % all.len()])
    }

    fn forget(&mut self, ticket: Ticket) {
        self.calls.remove(&ticket);
        self.gangs.remove(&ticket);
        self.tasks.remove(&ticket);
    }
}

fn apply(
    scheduler: &mut Scheduler,
    model: &mut GangQueueModel,
    step: GangStep,
    now: &mut Duration,
) {
    match step {
        GangStep::Call { tenant, memory } => {
            // Each has a function of its own, so that no instances are shared.
            let function = format!("{tenant} {memory} {}", model.calls.len());
            let made = Arc::new(of(&format!("t{tenant}"), call(&function, memory.into())));
            let ticket = scheduler.ask(Arc::clone(&made), *now, *now + 30 * SECOND);
            model.calls.insert(ticket, (made, None));
        }
        GangStep::Gang { tenant, ranks, memory, most_hosts } => {
            let made = GangDemand { most_hosts, ..gang(ranks.into(), memory.into()) };
            let made = Arc::new(of_tenant(&format!("t{tenant}"), made));
            let ticket = scheduler.ask_gang(Arc::clone(&made), *now, *now + 60 * SECOND);
            model.gangs.insert(ticket, (made, None));
        }
        GangStep::Task { tenant, memory, host, waits } => {
            let made = of_whom(&format!("t{tenant}"), memory.into());
            let number = host.into();
            let ticket = match waits {
                true => Some(scheduler.ask_task(Arc::clone(&made), wish(&[number, 1]), *now)),
                false => scheduler.start_task(Arc::clone(&made), &name(number), *now),
            };
            assert!(waits || ticket.is_none() || !model.drained.contains(&name(number)));
            if let Some(ticket) = ticket {
                model.tasks.insert(ticket, (made, (!waits).then(|| name(number))));
            }
        }
        GangStep::Refuse(at) => {
            let running = model.tasks.iter_mut().filter(|(_, (_, on))| on.is_some());
            let mut running: Vec<_> = running.collect();
            running.sort_unstable_by_key(|(ticket, _)| **ticket);
            let at = usize::from(at) % running.len().max(1);
            if let Some((ticket, held)) = running.into_iter().nth(at) {
                scheduler.refused(*ticket, *now);
                held.1 = None;
            }
        }
        GangStep::End(at) => {
            if let Some(ticket) = model.nth(at, true) {
                scheduler.ended(ticket, Some(0), *now);
                model.forget(ticket);
            }
        }
        GangStep::Withdraw(at) => {
            if let Some(ticket) = model.nth(at, false) {
                scheduler.withdraw(ticket, *now);
                model.forget(ticket);
            }
        }
        GangStep::Remove(host) => {
            let host = name(host.into());
            scheduler.remove(&host, *now);
            model.drained.remove(&host);
            model.calls.retain(|_, (_, on)| on.as_ref() != Some(&host));
        }
        GangStep::Report(host) => scheduler.report(&name(host.into()), ROOM),
        GangStep::Drain(host, is_drained) => {
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
        GangStep::Pass(seconds) => *now += SECOND * u32::from(seconds),
    }
}

proptest! {
    #[test]
    fn gangs_start_as_a_whole_within_the_memory_of_hosts_beside_calls_and_tasks(
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut scheduler = hosts(3);
        let mut model = GangQueueModel::default();
        let mut now = Duration::ZERO;
        for step in steps {
            apply(&mut scheduler, &mut model, step, &mut now);
            decided(&mut scheduler, now).into_iter().for_each(|decision| model.take(decision));
            prop_assert_eq!(scheduler.waiting(), model.waiting());
            for host in (1..5).map(name) {
                let (calls, whole) = model.on(&host);
                prop_assert!(calls + whole * u64::from(OVERCOMMIT) <= 100, "{calls} {whole}");
                let known = scheduler.memory(&host).map(|(taken, _)| taken);
                prop_assert!(known.is_none_or(|known| known == calls));
            }
        }
        // Whatever waits runs, is refused or expires, but tasks; what has ended leaves nothing.
        let waits = |model: &GangQueueModel| {
            let mut waits = model.tasks.iter().filter(|(_, it)| it.1.is_none());
            waits.next().map(|(ticket, _)| *ticket)
        };
        while let Some(ticket) = waits(&model) {
            scheduler.withdraw(ticket, now);
            model.forget(ticket);
            decided(&mut scheduler, now).into_iter().for_each(|decision| model.take(decision));
        }
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
    fn no_gang_starves_behind_calls_tasks_and_smaller_gangs(
        wanted in (1..6_u32, 20..50_u64),
        others in prop::collection::vec((0..3_u8, 5..40_u8, 0..3_u8, 1..5_u32), 200),
    ) {
        let mut scheduler = hosts(3);
        let mut now = Duration::ZERO;
        let mut ends: VecDeque<(Duration, Ticket)> = VecDeque::new();
        let mut asked = None;
        let mut started = None;
        for (at, (kind, memory, tenant, seconds)) in others.into_iter().enumerate() {
            now += SECOND / 4;
            let (due, later) = ends.into_iter().partition::<Vec<_>, _>(|(end, _)| *end <= now);
            ends = later.into();
            due.iter().for_each(|(_, ticket)| scheduler.ended(*ticket, Some(0), now));
            let tenant = format!("t{tenant}");
            match kind {
                0 => {
                    let made = of(&tenant, call(&format!("f{at}"), u64::from(memory) * 2));
                    scheduler.ask(Arc::new(made), now, now + 30 * SECOND);
                }
                1 => {
                    scheduler.ask_task(of_whom(&tenant, memory.into()), wish(&[1, 2, 3]), now);
                }
                _ => {
                    ask(&mut scheduler, of_tenant(&tenant, gang(1, memory.into())), now);
                }
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
        // The calls that were there before expire after thirty seconds; then the gangs end that
        // began before it was starved, and then the calls that began before its share was free of
        // those.
        let started = started.map(|at| at - since);
        prop_assert!(started.is_some_and(|after| after <= 38 * SECOND), "{started:?}");
    }
}
