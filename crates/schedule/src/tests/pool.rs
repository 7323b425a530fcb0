//! Tests of the number of hosts, in simulated time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use snowmelt_types::HostName;

use super::{MIB, SECOND, call, decided, name, run, scheduler, waits};
use crate::{CallDemand, Decision, HostRoom, PoolHost, PoolPolicy, PoolScaler, PoolStep};

const AFTER: Duration = Duration::from_secs(900);

fn pool() -> PoolScaler {
    PoolScaler::new(PoolPolicy { least: 1, most: 4, release_after: AFTER })
}

/// Makes a host: number 1 is control's, the others are the provider's.
fn host(number: usize, is_free: bool) -> PoolHost {
    let is_provided = number > 1;
    PoolHost { name: name(number), is_free: is_free && number > 1, is_drained: false, is_provided }
}

#[test]
fn calls_that_wait_need_as_many_hosts_as_their_memory_and_instances() {
    let mut scheduler = scheduler(1, 100 * MIB, 8);
    let now = Duration::ZERO;
    run(&mut scheduler, call("f", 100 * MIB), now);
    assert_eq!(scheduler.lacking(now + SECOND), 0);
    for _ in 0..5 {
        waits(&mut scheduler, call("f", 50 * MIB), now);
    }
    assert_eq!(scheduler.lacking(now), 0, "others may end in a moment");
    assert_eq!(scheduler.lacking(now + SECOND), 3);
    // Only control can run it.
    waits(&mut scheduler, CallDemand { only: Some(name(1)), ..call("g", 90 * MIB) }, now);
    assert_eq!(scheduler.lacking(now + SECOND), 3);
    for _ in 0..81 {
        waits(&mut scheduler, call("h", 1), now);
    }
    assert_eq!(scheduler.lacking(now + SECOND), 5, "20 instances on each");
}

#[test]
fn a_call_that_is_too_large_waits_while_hosts_may_come() {
    let mut scheduler = scheduler(1, 0, 8);
    scheduler.set_may_grow(true);
    let waiting = waits(&mut scheduler, call("f", MIB), Duration::ZERO);
    assert_eq!(scheduler.lacking(SECOND), 1);
    scheduler.report(&name(2), HostRoom { memory: MIB, cpu_millis: 1000, ..HostRoom::default() });
    assert_eq!(decided(&mut scheduler, SECOND), [Decision::Run(waiting, name(2))]);
    let large = waits(&mut scheduler, call("f", 2 * MIB), SECOND);
    scheduler.set_may_grow(false);
    assert_eq!(decided(&mut scheduler, SECOND), [Decision::Refused(large)]);
    let bound = CallDemand { only: Some(name(1)), ..call("g", MIB) };
    scheduler.set_may_grow(true);
    let bound = scheduler.ask(Arc::new(bound), SECOND, 30 * SECOND);
    assert_eq!(decided(&mut scheduler, SECOND), [Decision::Refused(bound)]);
}

#[test]
fn it_grows_for_calls_that_wait_and_shrinks_when_hosts_are_free() {
    let mut pool = pool();
    let mut now = Duration::ZERO;
    assert_eq!(pool.step(&[host(1, false)], 0, now), None);
    assert_eq!(pool.step(&[host(1, false)], 2, now), Some(PoolStep::Grow(3)));
    pool.asked(true, now);
    assert_eq!(pool.step(&[host(1, false)], 2, now), None, "hosts take a while");
    now += 10 * SECOND;
    assert_eq!(pool.step(&[host(1, false)], 9, now), Some(PoolStep::Grow(4)), "the most");
    let all: Vec<_> = (1..5).map(|number| host(number, number == 3)).collect();
    assert_eq!(pool.step(&all, 9, now), None);
    assert_eq!(pool.step(&all, 0, now + AFTER - SECOND), None);
    assert_eq!(pool.step(&all, 1, now + AFTER), None, "calls wait");
    assert_eq!(pool.step(&all, 0, now + AFTER), Some(PoolStep::Release(name(3))));
    // It had work in between.
    let busy: Vec<_> = (1..5).map(|number| host(number, false)).collect();
    assert_eq!(pool.step(&busy, 0, now + AFTER), None);
    assert_eq!(pool.step(&all, 0, now + AFTER + SECOND), None);
}

#[test]
fn hosts_of_others_drained_ones_and_the_least_stay() {
    let mut pool = PoolScaler::new(PoolPolicy { least: 2, most: 4, release_after: AFTER });
    let others = PoolHost { is_provided: false, ..host(2, true) };
    let drained = PoolHost { is_drained: true, ..host(3, true) };
    let hosts = [host(1, true), others.clone(), drained];
    assert_eq!(pool.step(&hosts, 0, Duration::ZERO), None);
    assert_eq!(pool.step(&hosts, 0, 9 * AFTER), None);
    assert_eq!(pool.step(&[host(1, true), host(2, true)], 0, 99 * AFTER), None);
    assert_eq!(pool.step(&[host(1, true)], 0, 99 * AFTER), Some(PoolStep::Grow(2)));
}

#[test]
fn a_provider_that_fails_is_asked_less_and_less_often() {
    let mut pool = pool();
    let mut now = Duration::ZERO;
    let mut pauses = Vec::new();
    for _ in 0..10 {
        assert!(pool.step(&[host(1, false)], 1, now).is_some());
        pool.asked(false, now);
        let pause = pool.pause(now).unwrap();
        assert_eq!(pool.step(&[host(1, false)], 1, now + pause - SECOND), None);
        pauses.push(pause.as_secs());
        now += pause;
    }
    assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300, 300, 300]);
    pool.asked(true, now);
    assert_eq!(pool.pause(now), None);
}

/// A step of a test: a change of the pool's load.
#[derive(Clone, Debug)]
enum ScalingStep {
    /// A number of calls that wait, and then run on the hosts.
    Lack(u32),
    /// A host begins to work, or becomes free.
    Work(usize, bool),
    Fail(bool),
    Pass(u16),
}

fn step() -> impl Strategy<Value = ScalingStep> {
    prop_oneof![
        2 => (0..4_u32).prop_map(ScalingStep::Lack),
        3 => (2..7_usize, any::<bool>()).prop_map(|(host, is)| ScalingStep::Work(host, is)),
        1 => any::<bool>().prop_map(ScalingStep::Fail),
        5 => (0..700_u16).prop_map(ScalingStep::Pass),
    ]
}

proptest! {
    #[test]
    fn there_are_never_too_many_or_too_few_and_what_has_work_stays(
        steps in prop::collection::vec(step(), 1..150),
        (least, more) in (1..3_u32, 0..4_u32),
    ) {
        let policy = PoolPolicy { least, most: least + more, release_after: AFTER };
        let mut pool = PoolScaler::new(policy);
        let mut now = Duration::ZERO;
        // Those that run, by whether they have work, and since when.
        let mut hosts: BTreeMap<HostName, (bool, Duration)> = BTreeMap::new();
        hosts.insert(name(1), (true, now));
        let mut lacking = 0;
        let mut fails = false;
        let mut asked = None::<Duration>;
        let quiet = [ScalingStep::Fail(false), ScalingStep::Lack(0)].into_iter();
        let quiet = quiet.chain((2..7).map(|host| ScalingStep::Work(host, false)));
        let quiet = quiet.chain((0..60).map(|_| ScalingStep::Pass(600)));
        for step in steps.into_iter().chain(quiet) {
            match step {
                ScalingStep::Lack(count) => lacking = count,
                ScalingStep::Fail(does) => fails = does,
                ScalingStep::Pass(seconds) => now += SECOND * u32::from(seconds),
                ScalingStep::Work(host, is) => {
                    if let Some(host) = hosts.get_mut(&name(host))
                        && host.0 != is
                    {
                        *host = (is, now);
                    }
                }
            }
            let seen = hosts.iter().map(|(host, (works, _))| PoolHost {
                name: host.clone(),
                is_free: !works,
                is_drained: false,
                is_provided: *host != name(1),
            });
            let seen: Vec<_> = seen.collect();
            let Some(step) = pool.step(&seen, lacking, now) else { continue };
            prop_assert!(asked.is_none_or(|last| now - last >= 5 * SECOND), "too often");
            asked = Some(now);
            pool.asked(!fails, now);
            match step {
                PoolStep::Grow(count) => {
                    prop_assert!(count <= policy.most && count as usize > hosts.len());
                    let free = (2..10).map(name).filter(|host| !hosts.contains_key(host));
                    let new: Vec<_> = free.take(count as usize - hosts.len()).collect();
                    if !fails {
                        hosts.extend(new.into_iter().map(|host| (host, (false, now))));
                    }
                }
                PoolStep::Release(host) => {
                    let (works, since) = hosts[&host];
                    prop_assert!(!works && now - since >= AFTER && lacking == 0);
                    prop_assert!(hosts.len() > least as usize && host != name(1));
                    if !fails {
                        hosts.remove(&host);
                    }
                }
            }
        }
        prop_assert_eq!(hosts.len(), least as usize, "all that is free for long is given back");
    }
}
