//! Tests of replays of traces, against results by hand and against single bursts.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::time::Duration;

use proptest::prelude::*;

use super::{assert_close, bare};
use crate::replay::{ReplayCalls, State};
use crate::{
    Arrival, Error, Profile, ReplayPolicy, Replayed, Setting, Strategy, Trace, TraceFunction,
    TraceOrigin, replay, simulate,
};

pub(super) const SECOND: u64 = 1_000_000_000;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const REPLAYED: [Strategy; 4] =
    [Strategy::Tree, Strategy::Stripes, Strategy::Registry, Strategy::Pull];

pub(super) fn policy() -> ReplayPolicy {
    ReplayPolicy {
        host_memory: 4096 * MIB,
        memory: 2048 * MIB,
        cpu_millis: 1000,
        keep_idle: Duration::from_secs(60),
        reclaim: Duration::from_secs(900),
        patience: Duration::from_secs(60),
        every: Duration::from_secs(60),
        warm: 0,
        kills: Vec::new(),
        absent: None,
        asynchronous: 0.0,
    }
}

/// Makes a trace of calls, each at a time in milliseconds, of a function, for a duration in
/// milliseconds.
pub(super) fn trace(functions: u32, calls: impl IntoIterator<Item = (u64, u32, u64)>) -> Trace {
    let function = |number| TraceFunction { name: format!("f{number}"), memory: None };
    let milliseconds = |time: u64| time * SECOND / 1000;
    let arrival = |(at, function, duration)| Arrival {
        at: milliseconds(at),
        duration: milliseconds(duration),
        function,
    };
    Trace {
        origin: TraceOrigin::Azure2021,
        functions: (0..functions).map(function).collect(),
        calls: calls.into_iter().map(arrival).collect(),
        recorded: Vec::new(),
    }
}

pub(super) fn replayed(
    trace: &Trace,
    setting: &Setting,
    policy: &ReplayPolicy,
    strategy: Strategy,
) -> Replayed {
    let replayed = replay(trace, setting, policy, strategy, &mut go_on);
    replayed.unwrap_or_else(|error| panic!("{error}"))
}

/// Settings with reading, a tail and forks, so that no part of a start is left out.
pub(super) fn starting(hosts: u32) -> Setting {
    Setting {
        read_rate: 50_000_000,
        unpack_rate: 25_000_000,
        tail: Duration::from_millis(300),
        fork: Duration::from_millis(10),
        delay: Duration::from_millis(5),
        ..bare(hosts)
    }
}

#[test]
fn calls_that_arrive_at_once_start_as_the_containers_of_a_burst() {
    for strategy in REPLAYED {
        for hosts in [1, 7, 64] {
            let setting = starting(hosts);
            // The scheduler puts one on each core.
            let containers = hosts * setting.cores;
            let burst = simulate(&Setting { containers, ..setting.clone() }, strategy).unwrap();
            let calls = trace(1, (0..containers).map(|_| (0, 0, 2000)));
            let found = replayed(&calls, &setting, &policy(), strategy);
            assert_eq!((found.ran, found.cold_starts), (containers.into(), containers.into()));
            assert_eq!((found.provisioned, found.most_hosts), (hosts.into(), hosts));
            assert_close(found.wait.least, burst.started.first);
            assert_close(found.wait.p50, burst.started.half);
            assert_close(found.wait.most, burst.started.last);
            assert_eq!(found.registry_bytes, burst.registry_bytes);
            assert_eq!(found.levels, u64::from(burst.levels));
        }
    }
}

#[test]
fn a_call_finds_the_instance_of_the_last_one_until_its_idle_time_is_over() {
    let calls = trace(1, [(0, 0, 1000), (10_000, 0, 1000), (70_999, 0, 1000), (200_000, 0, 1000)]);
    let found = replayed(&calls, &starting(3), &policy(), Strategy::Tree);
    assert_eq!((found.ran, found.cold_starts, found.provisioned), (4, 2, 1));
    // The first start waits for its first block and for the registry, the other has all of them.
    assert_close(found.wait.most, 0.01 + 0.2 + 0.3 + 0.005);
    assert_close(found.wait.mean, (found.wait.most + 0.2 + 0.3) / 4.0);
    assert_eq!(found.registry_bytes, 50_000_000);
}

#[test]
fn a_reclaimed_host_reads_the_image_again() {
    let calls = |second: u64| trace(1, [(0, 0, 1000), (second * 1000, 0, 1000)]);
    for strategy in REPLAYED {
        let before = replayed(&calls(890), &starting(3), &policy(), strategy);
        assert_eq!((before.provisioned, before.reclaimed), (1, 0));
        assert_eq!(before.registry_bytes, 50_000_000);
        let after = replayed(&calls(910), &starting(3), &policy(), strategy);
        assert_eq!((after.provisioned, after.reclaimed), (2, 1));
        assert_eq!(after.registry_bytes, 100_000_000);
        assert!(after.wait.mean > before.wait.mean, "{strategy:?}");
        // It was reclaimed 900 s after its last call, and used again at 910 s.
        let free = after.seconds - after.host_minutes * 60.0;
        assert!((5.0..9.0).contains(&free), "{free}");
    }
}

#[test]
fn a_host_that_joins_later_reads_from_one_that_is_there() {
    let calls = trace(1, [(0, 0, 60_000), (0, 0, 60_000), (5000, 0, 60_000)]);
    let found = replayed(&calls, &starting(2), &policy(), Strategy::Tree);
    assert_eq!((found.provisioned, found.levels), (2, 2));
    assert_eq!(found.registry_bytes, 50_000_000);
    // The whole link is its own.
    assert_close(found.provisioning.most, 0.01 + 0.2 + 0.3 + 2.0 * 0.005);
}

#[test]
fn waiting_calls_run_in_their_order_expire_or_are_refused() {
    // One host with room for two instances, whose calls take 10 s.
    let calls = |count: u32| trace(1, (0..count).map(|_| (0, 0, 10_000)));
    let one = starting(1);
    let found = replayed(&calls(4), &one, &policy(), Strategy::Tree);
    assert_eq!((found.ran, found.cold_starts), (4, 2));
    assert_close(found.wait.most, found.wait.p50 + 10.0);
    let impatient = ReplayPolicy { patience: Duration::from_secs(5), ..policy() };
    let found = replayed(&calls(4), &one, &impatient, Strategy::Tree);
    assert_eq!((found.ran, found.expired, found.refused), (2, 2, 0));
    let large = ReplayPolicy { memory: 5000 * MIB, ..policy() };
    let found = replayed(&calls(4), &one, &large, Strategy::Tree);
    assert_eq!((found.ran, found.expired, found.refused), (0, 0, 4));
    assert_eq!(found.wait, crate::Waits::default());
}

#[test]
fn an_idle_instance_of_another_function_ends_if_its_memory_is_needed() {
    let calls = trace(3, [(0, 0, 1000), (0, 1, 1000), (5000, 2, 1000), (10_000, 1, 1000)]);
    let found = replayed(&calls, &starting(1), &policy(), Strategy::Tree);
    // That of the first function is ended, which was used least lately.
    assert_eq!((found.ran, found.cold_starts), (4, 3));
}

#[test]
fn what_is_warm_at_the_beginning_costs_no_start() {
    let calls = trace(2, (0..8).map(|call| (0, call % 2, 1000)));
    for strategy in REPLAYED {
        let warm = ReplayPolicy { warm: 4, ..policy() };
        let found = replayed(&calls, &starting(4), &warm, strategy);
        assert_eq!((found.ran, found.cold_starts, found.provisioned), (8, 0, 0));
        assert_close(found.wait.most, 0.0);
        assert_eq!((found.registry_bytes, found.most_hosts), (0, 4));
    }
    let warm = ReplayPolicy { warm: 5, ..policy() };
    let refused = replay(&calls, &starting(4), &warm, Strategy::Tree, &mut go_on);
    assert!(matches!(refused, Err(Error::Setting(_))), "{refused:?}");
}

#[test]
fn the_table_over_time_has_each_call_once() {
    let calls = trace(1, (0..300).map(|call| (call * 1000, 0, 2000)));
    let found = replayed(&calls, &starting(4), &policy(), Strategy::Tree);
    let windows = &found.windows;
    assert_eq!(windows.len(), 5);
    assert!(windows.iter().all(|window| (window.arrived, window.started) == (60, 60)));
    assert_eq!(windows[1].start, 60.0);
    assert!(windows[0].wait_mean > 0.0 && windows[1].wait_mean == 0.0);
    let registry: u64 = windows.iter().map(|window| window.registry_bytes).sum();
    assert_eq!((registry, windows[0].registry_bytes), (found.registry_bytes, 50_000_000));
}

#[test]
fn equal_seeds_give_equal_traces_and_replays() {
    let made = |seed| Trace::synthetic(Profile::Gaming, 3, Duration::from_secs(2), seed).unwrap();
    assert_eq!(made(1), made(1));
    assert_ne!(made(1), made(2));
    let replayed = |strategy| replayed(&made(1), &starting(60), &policy(), strategy);
    for strategy in REPLAYED {
        assert_eq!(replayed(strategy), replayed(strategy));
    }
    assert!(replayed(Strategy::Stripes).synthetic);
}

#[test]
fn a_replay_ends_when_it_is_told_to() {
    let calls = trace(1, [(0, 0, 1000)]);
    let stopped = replay(&calls, &starting(1), &policy(), Strategy::Tree, &mut |progress| {
        assert_eq!((progress.ended, progress.calls), (0, 1));
        ControlFlow::Break(())
    });
    assert_eq!(stopped, Err(Error::Cancelled));
}

#[test]
fn policies_that_make_no_sense_are_refused() {
    let calls = trace(1, [(0, 0, 1000), (100_000_000, 0, 1000)]);
    let wrong = [
        ReplayPolicy { patience: Duration::ZERO, ..policy() },
        ReplayPolicy { memory: 0, ..policy() },
        ReplayPolicy { every: Duration::ZERO, ..policy() },
        ReplayPolicy { every: Duration::from_millis(1), ..policy() },
        ReplayPolicy { reclaim: Duration::MAX, ..policy() },
    ];
    for policy in wrong {
        let refused = replay(&calls, &starting(1), &policy, Strategy::Tree, &mut go_on);
        assert!(matches!(refused, Err(Error::Setting(_))), "{policy:?}");
    }
    let refused = |calls: &Trace, setting: &Setting, strategy| {
        let refused = replay(calls, setting, &policy(), strategy, &mut go_on);
        assert!(matches!(refused, Err(Error::Setting(_))), "{setting:?}");
    };
    refused(&calls, &starting(1), Strategy::Layers);
    refused(&calls, &starting(0), Strategy::Tree);
    refused(&trace(1, []), &starting(1), Strategy::Tree);
}

#[test]
fn calls_that_are_lost_repeated_or_overtaken_are_found() {
    let calls = trace(1, [(5, 0, 1), (6, 0, 1)]).calls;
    let new = || ReplayCalls::new(&calls, 1, Vec::new());
    let mut found = new();
    assert!(found.is_placed(0).is_err(), "it has not arrived");
    let mut found = new();
    assert!(found.is_asked(0, 1, 0).is_err(), "tickets are in their order");
    found.is_asked(0, 0, 0).unwrap();
    found.is_asked(1, 1, 0).unwrap();
    found.is_placed(1).unwrap();
    assert!(found.is_placed(0).unwrap_err().contains("overtaken"));
    assert!(found.starts(1, 5_999_999).unwrap_err().contains("before it arrives"));
    assert!(found.starts(1, 7_000_000).is_err(), "it has started");
    assert!(found.check().unwrap_err().contains("lost"));
}

#[test]
fn a_call_comes_back_only_from_a_host_that_failed() {
    let calls = trace(1, [(5, 0, 1), (6, 0, 1)]).calls;
    let mut found = ReplayCalls::new(&calls, 1, vec![true, false]);
    (0..2).for_each(|call| found.is_asked(call, call.into(), 0).unwrap());
    assert!(found.fails(0).is_err(), "no host has it");
    let mut found = ReplayCalls::new(&calls, 1, vec![true, false]);
    (0..2).for_each(|call| found.is_asked(call, call.into(), 0).unwrap());
    found.is_placed(0).unwrap();
    found.is_placed(1).unwrap();
    // One of them was not sent to its host, and stands where it stood.
    found.is_back(0).unwrap();
    found.is_placed(0).unwrap();
    found.starts(0, 7_000_000).unwrap().unwrap();
    found.is_lost(0).unwrap();
    assert_eq!(found.losses(0), 1);
    assert!(found.ends(0).is_err(), "its host is gone");
    let mut found = ReplayCalls::new(&calls, 1, vec![true, false]);
    found.is_asked(0, 0, 0).unwrap();
    found.is_placed(0).unwrap();
    found.is_lost(0).unwrap();
    assert_eq!(found.pauses(0, State::Lost), Ok(0));
    found.is_asked(0, 1, 9).unwrap();
    assert_eq!((found.of(0), found.of(1), found.deadline(0)), (Ok(0), Ok(0), Ok(9)));
    assert!(found.check().is_err());
}

pub(super) fn go_on(_: crate::ReplayProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Replays check the limits of hosts, the order of calls, the balance of trees, the rates of
    /// links and the bytes of every host.
    #[test]
    fn each_call_runs_once_expires_or_is_refused(
        (hosts, functions, per_host, fanout) in (1_u32..12, 1_u32..5, 1_u32..6, 1_usize..4),
        calls in prop::collection::vec((0_u64..120_000, 0_u32..5, 0_u64..20_000), 1..150),
        (keep_idle, reclaim, patience) in (0_u64..40, 0_u64..40, 1_u64..40),
        (memory, warm, seed) in (1_u64..5, 0_u32..2, any::<u64>()),
    ) {
        let mut calls: Vec<_> =
            calls.into_iter().map(|(at, function, takes)| (at, function % functions, takes)).collect();
        calls.sort_by_key(|call| call.0);
        let calls = trace(functions, calls);
        let fanout = NonZeroUsize::new(fanout).unwrap();
        let setting = Setting { per_host, fanout, seed, ..starting(hosts) };
        let policy = ReplayPolicy {
            memory: memory * 1024 * MIB,
            keep_idle: Duration::from_secs(keep_idle),
            reclaim: Duration::from_secs(reclaim),
            patience: Duration::from_secs(patience),
            every: Duration::from_secs(10),
            // There is room for one of each.
            warm: if hosts >= functions { warm } else { 0 },
            ..policy()
        };
        for strategy in REPLAYED {
            let found = replay(&calls, &setting, &policy, strategy, &mut go_on);
            let found = found.map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(found.ran + found.expired + found.refused, calls.calls.len() as u64);
            prop_assert_eq!(found.refused, 0);
            prop_assert!(found.most_hosts <= hosts);
            prop_assert!(found.cold_starts <= found.ran);
            let sum = |what: fn(&crate::Window) -> u64| found.windows.iter().map(what).sum::<u64>();
            prop_assert_eq!(sum(|point| point.arrived), found.calls);
            prop_assert_eq!(sum(|point| point.started), found.ran);
            prop_assert_eq!(sum(|point| point.cold_starts), found.cold_starts);
        }
    }
}
