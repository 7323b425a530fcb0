//! The scheduler compared with a plain model, over any sequence of requests.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use snowmelt_types::{Digest, HostName};

use super::{SECOND, call, decided, name, of, scheduler};
use crate::{CallDemand, Decision, HostRoom, Scheduler, Ticket};

/// A step of a test: a request to the scheduler.
#[derive(Clone, Debug)]
enum RequestStep {
    Ask { tenant: u8, function: u8, memory: u8, concurrency: u8 },
    End(u8),
    Withdraw(u8),
    Refuse(u8),
    Remove(u8),
    Report(u8),
    Drain(u8, bool),
    Pass(u8),
}

fn step() -> impl Strategy<Value = RequestStep> {
    prop_oneof![
        8 => (0..3_u8, 0..4_u8, 1..30_u8, 1..4_u8).prop_map(|(tenant, function, memory, concurrency)| {
            RequestStep::Ask { tenant, function, memory, concurrency }
        }),
        5 => any::<u8>().prop_map(RequestStep::End),
        1 => any::<u8>().prop_map(RequestStep::Withdraw),
        1 => any::<u8>().prop_map(RequestStep::Refuse),
        1 => (1..6_u8).prop_map(RequestStep::Remove),
        2 => (1..6_u8).prop_map(RequestStep::Report),
        1 => ((1..6_u8), any::<bool>()).prop_map(|(host, is)| RequestStep::Drain(host, is)),
        2 => (0..20_u8).prop_map(RequestStep::Pass),
    ]
}

/// A plain model: the host of each call, and the resources that it takes there.
#[derive(Default)]
struct CallModel {
    running: HashMap<Ticket, (Arc<CallDemand>, HostName)>,
    waiting: HashMap<Ticket, Arc<CallDemand>>,
}

impl CallModel {
    fn take(&mut self, decision: &Decision) {
        match decision {
            Decision::Run(ticket, host) => {
                let call = self.waiting.remove(ticket).expect("it waits");
                self.running.insert(*ticket, (call, host.clone()));
            }
            Decision::Start(..) => panic!("no gang was asked for"),
            Decision::Expired(ticket) | Decision::Refused(ticket) => {
                self.waiting.remove(ticket).expect("it waits");
            }
        }
    }

    /// The number of instances of each function on a host, and the memory of all.
    fn on(&self, host: &HostName) -> (HashMap<Digest, u32>, u64) {
        let mut calls: HashMap<Digest, (u32, Arc<CallDemand>)> = HashMap::new();
        for (call, _) in self.running.values().filter(|(_, on)| on == host) {
            let entry = calls.entry(call.function.clone()).or_insert((0, Arc::clone(call)));
            entry.0 += 1;
        }
        let busy = |(calls, call): &(u32, Arc<CallDemand>)| calls.div_ceil(call.concurrency);
        let memory = calls.values().map(|call| u64::from(busy(call)) * call.1.memory).sum();
        (calls.iter().map(|(function, it)| (function.clone(), busy(it))).collect(), memory)
    }

    fn nth(&self, at: u8) -> Option<Ticket> {
        let mut tickets: Vec<_> = self.running.keys().copied().collect();
        tickets.sort_unstable();
        (!tickets.is_empty()).then(|| tickets[usize::from(at) % tickets.len()])
    }
}

fn apply(scheduler: &mut Scheduler, model: &mut CallModel, step: RequestStep, now: &mut Duration) {
    let room = HostRoom { memory: 100, cpu_millis: 2000, ..HostRoom::default() };
    match step {
        RequestStep::Ask { tenant, function, memory, concurrency } => {
            // A function is its limits too.
            let named = format!("{tenant}-{function}-{memory}-{concurrency}");
            let call = of(&format!("t{tenant}"), call(&named, memory.into()));
            let near_first = function % 2 == 1;
            let call = Arc::new(CallDemand { concurrency: concurrency.into(), near_first, ..call });
            let ticket = scheduler.ask(Arc::clone(&call), *now, *now + 30 * SECOND);
            model.waiting.insert(ticket, call);
        }
        RequestStep::End(at) => {
            if let Some(ticket) = model.nth(at) {
                match at % 4 {
                    3 => scheduler.ended_with_instance(ticket, *now),
                    count => scheduler.ended(ticket, Some(count.into()), *now),
                }
                model.running.remove(&ticket);
            }
        }
        RequestStep::Withdraw(at) => {
            let waiting = model.waiting.keys().copied().min();
            if let Some(ticket) = waiting.or_else(|| model.nth(at)) {
                scheduler.withdraw(ticket, *now);
                model.waiting.remove(&ticket);
                model.running.remove(&ticket);
            }
        }
        RequestStep::Refuse(at) => {
            if let Some(ticket) = model.nth(at) {
                scheduler.refused(ticket, *now);
                let (call, _) = model.running.remove(&ticket).unwrap();
                model.waiting.insert(ticket, call);
            }
        }
        RequestStep::Remove(host) => {
            let host = name(host.into());
            scheduler.remove(&host, *now);
            // Half of their calls had not begun: they are placed again.
            let (running, lost): (HashMap<_, _>, HashMap<_, _>) =
                std::mem::take(&mut model.running)
                    .into_iter()
                    .partition(|(_, (_, on))| *on != host);
            model.running = running;
            for (ticket, (call, _)) in lost {
                if ticket % 2 == 0 {
                    scheduler.refused(ticket, *now);
                    model.waiting.insert(ticket, call);
                }
            }
        }
        RequestStep::Report(host) => scheduler.report(&name(host.into()), room),
        RequestStep::Drain(host, is_drained) => scheduler.drain(&name(host.into()), is_drained),
        RequestStep::Pass(seconds) => *now += SECOND * u32::from(seconds),
    }
}

proptest! {
    #[test]
    fn no_host_has_more_than_it_has_room_for(steps in prop::collection::vec(step(), 1..200)) {
        let mut scheduler = scheduler(3, 100, 2);
        let mut model = CallModel::default();
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
}
