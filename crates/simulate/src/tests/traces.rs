//! Replays of traces, against what can be worked out by hand and against single bursts.

use std::ops::ControlFlow;
use std::time::Duration;

use proptest::prelude::*;

use super::{assert_close, bare};
use crate::{
    Arrival, Error, Function, Origin, Policy, Profile, Replayed, Setting, Strategy, Trace, replay,
    simulate,
};

const SECOND: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;
const REPLAYED: [Strategy; 4] =
    [Strategy::Tree, Strategy::Stripes, Strategy::Registry, Strategy::Pull];

fn policy() -> Policy {
    Policy {
        host_memory: 4096 * MIB,
        memory: 512 * MIB,
        cpu_millis: 1000,
        keep_idle: Duration::from_secs(60),
        reclaim: Duration::from_secs(900),
        patience: Duration::from_secs(600),
        every: Duration::from_secs(60),
    }
}

/// Calls of functions at so many milliseconds, which take so many.
fn trace(functions: u32, calls: impl IntoIterator<Item = (u64, u32, u64)>) -> Trace {
    let function = |number| Function { name: format!("f{number}"), memory: None };
    let milliseconds = |time: u64| time * SECOND / 1000;
    let arrival = |(at, function, duration)| Arrival {
        at: milliseconds(at),
        duration: milliseconds(duration),
        function,
    };
    Trace {
        origin: Origin::Azure2021,
        functions: (0..functions).map(function).collect(),
        calls: calls.into_iter().map(arrival).collect(),
        recorded: Vec::new(),
    }
}

fn replayed(trace: &Trace, setting: &Setting, policy: &Policy, strategy: Strategy) -> Replayed {
    let replayed = replay(trace, setting, policy, strategy, &mut |_| ControlFlow::Continue(()));
    replayed.unwrap_or_else(|error| panic!("{error}"))
}

/// Reading, a tail and forks, so that nothing that a start consists of is left out.
fn starting(hosts: u32) -> Setting {
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
fn synthetic_speed() {
    let trace = Trace::synthetic(Profile::Iot, 1, Duration::from_secs(2), 0).unwrap();
    let setting = Setting {
        hosts: 1000,
        link: 125_000_000,
        registry_link: 1_250_000_000,
        image: 758_000_000,
        start: 122_000_000,
        block: 512 << 10,
        read_rate: 21_000_000,
        unpack_rate: 12_000_000,
        tail: Duration::from_millis(1300),
        fork: Duration::from_millis(5),
        ..bare(1000)
    };
    for strategy in REPLAYED {
        let begun = std::time::Instant::now();
        let mut found = replayed(&trace, &setting, &policy(), strategy);
        println!("{:?}", begun.elapsed());
        for window in &found.windows {
            println!("{window:?}");
        }
        found.windows.clear();
        println!("{found:?}");
    }
}
