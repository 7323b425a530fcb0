//! Tests of hosts that fail while a trace is replayed.

use std::num::NonZeroUsize;
use std::time::Duration;

use proptest::prelude::*;

use super::assert_close;
use super::traces::{MIB, REPLAYED, go_on, policy, replayed, starting, trace};
use crate::{Error, Kill, Losses, ReplayPolicy, Replayed, Setting, Strategy, replay};

fn kill(hosts: u32, seconds: u64) -> Kill {
    Kill { hosts, at: Duration::from_secs(seconds) }
}

/// Settings with hosts that fail, which is noticed after two seconds.
fn failing(hosts: u32, kills: impl Into<Vec<Kill>>) -> (Setting, ReplayPolicy) {
    let setting = Setting { detect: Duration::from_secs(2), ..starting(hosts) };
    (setting, ReplayPolicy { kills: kills.into(), ..policy() })
}

fn losses(found: &Replayed) -> &Losses {
    found.losses.as_ref().unwrap()
}

#[test]
fn a_call_fails_with_its_host_and_an_asynchronous_one_runs_again() {
    // A call on each core of both hosts, when one of them fails.
    let calls = trace(1, (0..4).map(|_| (0, 0, 20_000)).chain([(30_000, 0, 1000)]));
    let (setting, policy) = failing(2, [kill(1, 10)]);
    for strategy in REPLAYED {
        let found = replayed(&calls, &setting, &policy, strategy);
        assert_eq!((found.ran, losses(&found).failed, losses(&found).run_again), (3, 2, 0));
        assert_eq!((losses(&found).hosts, losses(&found).joined), (1, 0));
        assert_eq!(found.windows[0].failed, 2);
        let again = ReplayPolicy { asynchronous: 1.0, ..policy.clone() };
        let found = replayed(&calls, &setting, &again, strategy);
        assert_eq!((found.ran, losses(&found).failed, losses(&found).run_again), (5, 0, 2));
        // The other host is full until its own calls have ended.
        let response = losses(&found).response_around.most;
        assert!((40.0..43.0).contains(&response), "{response}");
    }
}

#[test]
fn a_lost_call_is_tried_again_a_quarter_of_a_second_after_the_loss_is_noticed() {
    let calls = trace(1, [(0, 0, 20_000)]);
    let (setting, policy) = failing(1, [kill(1, 0)]);
    let refused = replay(&calls, &setting, &policy, Strategy::Tree, &mut go_on);
    assert!(matches!(refused, Err(Error::Setting(_))), "{refused:?}");
    // A call on each of two hosts, of which one fails. The new host is there before the call is
    // tried again, and the last call has started an instance there.
    let calls = trace(1, [(0, 0, 20_000), (0, 0, 20_000), (6000, 0, 0)]);
    let policy = ReplayPolicy {
        host_memory: policy.memory,
        absent: Some(Duration::from_millis(500)),
        asynchronous: 1.0,
        kills: vec![kill(1, 5)],
        ..policy
    };
    let setting = Setting { hosts: 2, cores: 1, ..setting };
    let found = replayed(&calls, &setting, &policy, Strategy::Registry);
    assert_eq!((found.ran, losses(&found).joined, losses(&found).run_again), (3, 1, 1));
    assert_close(losses(&found).response_around.most, 5.0 + 2.0 + 0.25 + 20.0);
    assert_close(found.provisioning.most, 0.01 + 0.2 + 0.3 + 0.005);
}

#[test]
fn what_is_placed_before_the_loss_is_noticed_is_lost_or_placed_again() {
    // The first function is warm on both hosts, the other one is on none.
    let warm = ReplayPolicy { warm: 4, ..policy() };
    let (setting, _) = failing(2, []);
    let sent = trace(1, [(0, 0, 1000), (5000, 0, 1000), (5500, 0, 1000), (5600, 0, 1000)]);
    let lost = ReplayPolicy { kills: vec![kill(1, 5)], ..warm };
    let found = replayed(&sent, &setting, &lost, Strategy::Tree);
    // Control does not know, and takes the instance that was used last: on one of the two hosts.
    assert_eq!(found.ran + losses(&found).failed, 4);
    assert_eq!(losses(&found).placed_again, 0);
    // Nothing is prepared: the calls of a host that fails wait until it is noticed, and run then.
    let unsent = trace(2, [(0, 0, 1000), (5000, 1, 1000), (5000, 1, 1000), (5000, 1, 1000)]);
    let found = replayed(&unsent, &setting, &ReplayPolicy { warm: 0, ..lost }, Strategy::Tree);
    assert_eq!((found.ran, losses(&found).failed), (4, 0));
    assert!((1..=2).contains(&losses(&found).placed_again), "{found:?}");
    // The instances of the other host are idle by then, or forked.
    let longest = losses(&found).response_around.most;
    assert!((3.0..3.1).contains(&longest), "{longest}");
}

#[test]
fn an_asynchronous_call_that_finds_no_host_in_time_waits_on() {
    let calls = trace(1, (0..6).map(|_| (0, 0, 20_000)));
    let impatient = ReplayPolicy { patience: Duration::from_secs(5), ..policy() };
    let found = replayed(&calls, &starting(1), &impatient, Strategy::Tree);
    assert_eq!((found.ran, found.expired, found.losses.is_none()), (2, 4, true));
    let again = ReplayPolicy { asynchronous: 1.0, ..impatient };
    let found = replayed(&calls, &starting(1), &again, Strategy::Tree);
    assert_eq!((found.ran, found.expired), (6, 0));
    // One that no host ever has room for is refused all the same.
    let large = ReplayPolicy { memory: 5000 * MIB, ..again };
    assert_eq!(replayed(&calls, &starting(1), &large, Strategy::Tree).refused, 6);
}

#[test]
fn trees_are_repaired_and_a_host_that_joins_reads_from_the_others() {
    let hosts = 40_u32;
    let calls = trace(
        1,
        (0..hosts * 2).map(|_| (0, 0, 5000)).chain((0..hosts * 2).map(|_| (30_000, 0, 5000))),
    );
    for strategy in [Strategy::Tree, Strategy::Stripes] {
        let (setting, policy) = failing(hosts, [kill(10, 0), kill(5, 30)]);
        let policy = ReplayPolicy { absent: Some(Duration::from_secs(3)), ..policy };
        let found = replayed(&calls, &setting, &policy, strategy);
        let lost = losses(&found);
        assert_eq!((lost.hosts, lost.joined), (15, 15));
        assert_eq!(found.ran + lost.failed + found.expired, u64::from(hosts) * 4);
        assert!(found.moves > 0 && found.levels > 3, "{found:?}");
        // A new root reads what the last one had before it.
        assert!(found.registry_bytes < 5 * 50_000_000, "{}", found.registry_bytes);
        assert!(found.most_hosts <= hosts);
    }
}

#[test]
fn response_times_around_a_failure_are_told_apart() {
    let calls = trace(1, (0..300).map(|call| (call * 1000, 0, 500)));
    let (setting, policy) = failing(3, [kill(1, 150)]);
    let found = replayed(&calls, &setting, &policy, Strategy::Tree);
    let lost = losses(&found);
    assert_close(lost.response_otherwise.p50, 0.5);
    assert_close(lost.response_around.p50, 0.5);
    assert_eq!(found.ran + lost.failed, 300);
}

#[test]
fn equal_seeds_lose_the_same_hosts() {
    let calls = trace(3, (0..400).map(|call| (call * 100, call as u32 % 3, 1500)));
    let (setting, policy) = failing(20, [kill(5, 10), kill(3, 20)]);
    let policy = ReplayPolicy { asynchronous: 0.5, absent: Some(Duration::from_secs(9)), ..policy };
    let with_seed = |seed| {
        let setting = Setting { seed, ..setting.clone() };
        let found = replayed(&calls, &setting, &policy, Strategy::Stripes);
        Replayed { seed: 0, ..found }
    };
    assert_eq!(with_seed(1), with_seed(1));
    assert_ne!(with_seed(1), with_seed(2));
}

#[test]
fn failures_that_make_no_sense_are_refused() {
    let calls = trace(1, [(0, 0, 1000), (100_000, 0, 1000)]);
    let (setting, policy) = failing(3, []);
    let with = |kills: &[Kill]| ReplayPolicy { kills: kills.to_vec(), ..policy.clone() };
    let absent = |seconds| Some(Duration::from_secs(seconds));
    let wrong = [
        with(&[kill(0, 5)]),
        with(&[kill(3, 5)]),
        with(&[kill(2, 5), kill(1, 9)]),
        with(&[kill(1, 101)]),
        ReplayPolicy { absent: absent(4), ..with(&[kill(2, 5), kill(1, 9)]) },
        ReplayPolicy { absent: Some(Duration::MAX), ..with(&[kill(1, 5)]) },
        ReplayPolicy { asynchronous: 1.5, ..policy.clone() },
        ReplayPolicy { asynchronous: f64::NAN, ..policy.clone() },
    ];
    for policy in wrong {
        let refused = replay(&calls, &setting, &policy, Strategy::Tree, &mut go_on);
        assert!(matches!(refused, Err(Error::Setting(_))), "{policy:?}");
    }
    // Others have joined before.
    let policy = ReplayPolicy { absent: absent(3), ..with(&[kill(2, 5), kill(2, 9)]) };
    assert!(replay(&calls, &setting, &policy, Strategy::Tree, &mut go_on).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Replays with failures make the usual checks, and check that each call is accounted for and
    /// that hosts have nothing left at the end.
    #[test]
    fn no_call_is_lost_without_account(
        (hosts, functions, per_host, fanout) in (3_u32..14, 1_u32..5, 1_u32..6, 1_usize..4),
        calls in prop::collection::vec((0_u64..120_000, 0_u32..5, 0_u64..20_000), 1..150),
        kills in prop::collection::vec((1_u32..4, 0_u64..120), 1..4),
        (detect, absent, part) in (0_u64..9, prop::option::of(0_u64..40), 0_u32..3),
        (keep_idle, reclaim, patience) in (0_u64..40, 0_u64..40, 1_u64..40),
        (memory, warm, seed) in (1_u64..5, 0_u32..2, any::<u64>()),
    ) {
        let mut calls: Vec<_> =
            calls.into_iter().map(|(at, function, takes)| (at, function % functions, takes)).collect();
        // The last call comes after all failures.
        calls.push((120_000, 0, 100));
        calls.sort_by_key(|call| call.0);
        let calls = trace(functions, calls);
        // A host is left whatever happens.
        let kills: Vec<_> = kills.into_iter().map(|(count, at)| kill(count, at)).collect();
        let hosts = hosts + kills.iter().map(|kill| kill.hosts).sum::<u32>();
        let fanout = NonZeroUsize::new(fanout).unwrap();
        let detect = Duration::from_secs(detect);
        let setting = Setting { per_host, fanout, seed, detect, ..starting(hosts) };
        let policy = ReplayPolicy {
            memory: memory * 1024 * MIB,
            keep_idle: Duration::from_secs(keep_idle),
            reclaim: Duration::from_secs(reclaim),
            patience: Duration::from_secs(patience),
            every: Duration::from_secs(10),
            warm: if hosts >= functions { warm } else { 0 },
            kills,
            absent: absent.map(Duration::from_secs),
            asynchronous: f64::from(part) / 2.0,
            ..policy()
        };
        for strategy in REPLAYED {
            let found = replay(&calls, &setting, &policy, strategy, &mut go_on);
            let found = found.map_err(|error| TestCaseError::fail(error.to_string()))?;
            let lost = losses(&found);
            let over = found.ran + found.expired + found.refused + lost.failed;
            prop_assert_eq!(over, calls.calls.len() as u64);
            prop_assert_eq!(found.refused, 0);
            prop_assert!(lost.failed == 0 || part < 2);
            prop_assert!(lost.run_again == 0 || part > 0);
            prop_assert!(found.expired == 0 || part < 2);
            prop_assert!(lost.hosts >= lost.joined);
            let sum = |what: fn(&crate::Window) -> u64| found.windows.iter().map(what).sum::<u64>();
            prop_assert_eq!(sum(|point| point.failed), lost.failed);
            prop_assert!(sum(|point| point.started) >= found.ran);
            prop_assert_eq!(&found, &replay(&calls, &setting, &policy, strategy, &mut go_on).unwrap());
        }
    }
}
