//! Tests of simulations as a whole, against results by hand.

mod failures;
mod reading;
mod shares;
mod traces;

use std::num::NonZeroUsize;
use std::time::Duration;

use proptest::prelude::*;
use snowmelt_tree::Repair;
use snowmelt_types::Report;

use crate::burst::run;
use crate::model::{HostSlot, ImageBlocks, Local, Observe};
use crate::{Error, Setting, SimulationOutcome, Spread, Strategy, simulate};

const ALL: [Strategy; 5] =
    [Strategy::Tree, Strategy::Registry, Strategy::Layers, Strategy::Stripes, Strategy::Pull];

/// Settings with blocks of 1 MB and links of 100 MB a second, without any work of hosts.
fn bare(hosts: u32) -> Setting {
    Setting {
        hosts,
        containers: hosts,
        functions: 1,
        per_host: 20,
        link: 100_000_000,
        registry_link: 1_000_000_000,
        delay: Duration::ZERO,
        image: 50_000_000,
        start: 10_000_000,
        on_demand: 0,
        block: 1_000_000,
        layers: 5,
        fanout: NonZeroUsize::new(2).unwrap(),
        repair: Repair::Refill,
        read_rate: u64::MAX,
        tail: Duration::ZERO,
        fork: Duration::ZERO,
        cores: 2,
        unpack_rate: u64::MAX,
        kill: 0,
        detect: Duration::ZERO,
        seed: 7,
    }
}

fn simulated(setting: &Setting, strategy: Strategy) -> SimulationOutcome {
    simulate(setting, strategy).unwrap()
}

/// Whether two times are equal to the microsecond: each block may end a nanosecond late.
fn close(found: f64, expected: f64) -> bool {
    (found - expected).abs() < 1e-6
}

#[track_caller]
fn assert_close(found: f64, expected: f64) {
    assert!(close(found, expected), "{found} is not {expected}");
}

#[test]
fn one_host_reads_at_the_rate_of_its_link() {
    let outcome = simulated(&bare(1), Strategy::Tree);
    assert_close(outcome.arrived.last, 0.1);
    assert_close(outcome.whole.last, 0.5);
    assert_eq!((outcome.registry_bytes, outcome.received_bytes), (50_000_000, 50_000_000));
}

#[test]
fn a_child_is_one_block_behind_and_shares_its_parents_link() {
    // The first block is at the root after 10 ms; over half of a link it takes 20 ms, as all after
    // it.
    let outcome = simulated(&bare(7), Strategy::Tree);
    assert_close(outcome.whole.first, 0.5);
    assert_close(outcome.whole.half, 0.01 + 51.0 * 0.02);
    assert_close(outcome.whole.last, 0.01 + 51.0 * 0.02);
    assert_eq!((outcome.registry_bytes, outcome.levels), (50_000_000, 3));
}

#[test]
fn stripes_use_the_whole_link_of_every_host() {
    let (tree, stripes) =
        (simulated(&bare(64), Strategy::Tree), simulated(&bare(64), Strategy::Stripes));
    // A part of the image at half of the rate, and a block for each of up to six levels.
    assert!((0.5..0.5 + 8.0 * 0.02).contains(&stripes.whole.last), "{stripes:?}");
    assert!(tree.whole.last > 1.0);
    assert_eq!(stripes.registry_bytes, 50_000_000);
}

#[test]
fn a_chain_keeps_the_whole_rate_and_adds_a_block_for_each_host() {
    let setting = Setting { fanout: NonZeroUsize::new(1).unwrap(), ..bare(20) };
    assert_close(simulated(&setting, Strategy::Tree).whole.last, 0.5 + 19.0 * 0.01);
}

#[test]
fn hosts_share_the_link_of_the_registry() {
    let outcome = simulated(&bare(40), Strategy::Registry);
    assert_close(outcome.arrived.last, 40.0 * 0.01);
    assert_close(outcome.whole.first, 40.0 * 0.05);
    assert_close(outcome.whole.last, 40.0 * 0.05);
    assert_eq!(outcome.registry_bytes, 40 * 50_000_000);
}

#[test]
fn a_pulled_image_is_unpacked_before_anything_starts() {
    let setting = Setting { unpack_rate: 25_000_000, tail: Duration::from_secs(1), ..bare(40) };
    let outcome = simulated(&setting, Strategy::Pull);
    assert_close(outcome.arrived.last, 2.0);
    assert_close(outcome.started.last, 2.0 + 2.0 + 1.0);
}

#[test]
fn a_start_reads_while_blocks_arrive_and_forks_its_further_containers() {
    let tail = Duration::from_millis(300);
    let fork = Duration::from_millis(10);
    let setting = Setting { containers: 5, read_rate: 50_000_000, tail, fork, ..bare(2) };
    let outcome = simulated(&setting, Strategy::Tree);
    // 10 MB arrive in 0.1 s. Reading them takes 0.2 s, of which the first block's arrival is late.
    assert_close(outcome.started.first, 0.01 + 0.2 + 0.3);
    assert_eq!((outcome.containers, outcome.hosts), (5, 2));
    let second = 0.02 + 0.2 + 0.3;
    let last = f64::max(outcome.started.first + 0.02, second + 0.01);
    assert_close(outcome.started.last, last);
}

#[test]
fn each_hop_adds_the_delay() {
    let setting = Setting { delay: Duration::from_millis(5), ..bare(3) };
    let outcome = simulated(&setting, Strategy::Tree);
    assert_close(outcome.whole.first, 0.5 + 0.005);
    assert_close(outcome.whole.last, 1.01 + 0.01);
}

#[test]
fn functions_on_one_host_share_its_link_and_its_cores() {
    let setting = Setting { functions: 4, containers: 4, read_rate: 10_000_000, ..bare(1) };
    let outcome = simulated(&setting, Strategy::Tree);
    assert_close(outcome.whole.last, 2.0);
    // Four on two cores: 10 MB at half of the rate, after a first block at a quarter of the link.
    assert_close(outcome.started.last, 0.04 + 2.0);
}

#[test]
fn the_registry_sends_an_image_once_to_any_number_of_hosts() {
    for hosts in [2, 64, 1000] {
        assert_eq!(simulated(&bare(hosts), Strategy::Tree).registry_bytes, 50_000_000);
    }
    assert_eq!(simulated(&bare(64), Strategy::Layers).registry_bytes, 50_000_000);
}

#[test]
fn hosts_in_groups_have_the_times_of_hosts_one_by_one() {
    for (hosts, fanout) in [(1, 2), (2, 2), (37, 2), (100, 3), (255, 2)] {
        let fanout = NonZeroUsize::new(fanout).unwrap();
        let setting = Setting { fanout, containers: hosts * 2 + hosts / 3, ..bare(hosts) };
        for strategy in [Strategy::Tree, Strategy::Registry, Strategy::Pull] {
            let grouped = run(&setting, strategy, true).unwrap();
            let single = run(&setting, strategy, false).unwrap();
            let same = SimulationOutcome {
                streams: single.streams,
                events: single.events,
                ..grouped.clone()
            };
            assert_eq!(same, single);
            assert!(grouped.streams <= 2 * u64::from(grouped.levels) + 1);
        }
    }
}

#[test]
fn equal_seeds_give_equal_outcomes() {
    let setting = Setting { kill: 5, ..bare(50) };
    let other = Setting { seed: 8, ..setting.clone() };
    for strategy in ALL {
        assert_eq!(simulated(&setting, strategy), simulated(&setting, strategy));
    }
    assert_ne!(simulated(&setting, Strategy::Tree), simulated(&other, Strategy::Tree).with_seed(7));
}

#[test]
fn a_lost_host_is_missed_until_its_tree_is_repaired() {
    let quick = Setting { kill: 20, ..bare(100) };
    let slow = Setting { detect: Duration::from_secs(3), ..quick.clone() };
    let quick = simulated(&quick, Strategy::Tree);
    let slow = simulated(&slow, Strategy::Tree);
    assert_eq!((quick.killed, quick.hosts), (20, 80));
    assert!(quick.moves > 0 && quick.lost_bytes > 0);
    assert!(slow.whole.last > quick.whole.last + 1.0);
}

/// The seed once failed the check of bytes: streams got another parent at the same rate at which
/// they had stopped.
#[test]
fn a_stream_goes_on_when_another_parent_gives_it_the_same_rate() {
    let setting = Setting {
        kill: 6,
        seed: 17_434_316_446_204_970_306,
        link: 50_000_150,
        registry_link: 32_000_096,
        detect: Duration::from_millis(226),
        image: 7_300_001,
        start: 2_000_000,
        ..bare(36)
    };
    assert_eq!(simulated(&setting, Strategy::Tree).hosts, 30);
}

/// Lets hosts read on demand: meanwhile a level of the tree waits for the one above it.
#[test]
fn the_other_stripes_wait_for_what_is_read_on_demand() {
    let usual = |hosts| Setting { start: 50_000_000, ..bare(hosts) };
    let on_demand = |hosts| Setting { on_demand: 2_000_000, ..usual(hosts) };
    let whole = |setting: &Setting, strategy| simulated(setting, strategy).whole.last;
    // One host has both stripes of the registry, and no time in which its link is idle.
    assert_close(whole(&on_demand(1), Strategy::Stripes), 0.5);
    for hosts in [2, 4, 8, 32] {
        let outcome = simulated(&on_demand(hosts), Strategy::Stripes);
        let later = outcome.whole.last;
        let before = whole(&usual(hosts), Strategy::Stripes);
        // At least a block at the first level, at most all of it at each.
        let most = f64::from(outcome.levels + 1) * 0.02;
        assert!((before + 0.005..before + most).contains(&later), "{hosts}: {before} {later}");
        assert_close(
            whole(&on_demand(hosts), Strategy::Tree),
            whole(&usual(hosts), Strategy::Tree),
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Simulations check the balance of trees, the rates of links and the bytes of every host.
    #[test]
    fn all_survivors_get_their_images(
        hosts in 2_u32..60,
        (functions, fanout, kill) in (1_u32..4, 1_usize..5, 0_u32..30),
        (seed, repair) in (any::<u64>(), prop_oneof![Just(Repair::Refill), Just(Repair::Rotate)]),
        (link, registry_link, detect) in (1_u64..200, 1_u64..500, 0_u64..500),
        on_demand in 0_u64..2_000_000,
    ) {
        let setting = Setting {
            functions,
            containers: hosts * functions,
            fanout: NonZeroUsize::new(fanout).unwrap(),
            kill: kill.min(hosts - 1),
            seed,
            repair,
            link: link * 1_000_003,
            registry_link: registry_link * 1_000_003,
            detect: Duration::from_millis(detect),
            image: 7_300_001,
            start: 2_000_000,
            on_demand,
            ..bare(hosts)
        };
        for strategy in ALL {
            let outcome = simulate(&setting, strategy);
            let outcome = outcome.map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(outcome.hosts, u64::from((hosts - setting.kill) * functions));
            prop_assert!(outcome.registry_bytes >= setting.image * u64::from(functions));
            // A tree of one root cannot send faster than its link.
            let least = setting.image as f64 / setting.link.min(setting.registry_link) as f64;
            prop_assert!(outcome.whole.first >= least * (1.0 - 1e-9));
        }
    }
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let wrong = [
        Setting { hosts: 0, ..bare(1) },
        Setting { per_host: 1, containers: 3, ..bare(2) },
        Setting { start: 60_000_000, ..bare(2) },
        Setting { on_demand: 11_000_000, ..bare(2) },
        Setting { kill: 2, ..bare(2) },
        Setting { functions: 3, ..bare(2) },
        Setting { block: 0, ..bare(2) },
        Setting { fanout: NonZeroUsize::new(65).unwrap(), ..bare(2) },
        Setting { tail: Duration::MAX, ..bare(2) },
        Setting { link: 1, image: u64::MAX, block: u64::MAX, ..bare(2) },
        Setting { hosts: 10_000_000, containers: 10_000_000, functions: 3, ..bare(2) },
    ];
    for setting in wrong {
        let refused = simulate(&setting, Strategy::Tree);
        assert!(matches!(refused, Err(Error::Setting(_))), "{setting:?}");
    }
}

#[test]
fn a_block_that_comes_twice_or_not_at_all_is_found() {
    let blocks = ImageBlocks::new(2_500, 1_000);
    let mut local = Local::new(blocks, 1_000);
    local.slots.push(HostSlot::new(1, 0.0));
    local.add_stream(0);
    for index in [0, 1, 2] {
        assert!(local.check(0).is_err());
        local.block(0, index, blocks.size(index), 5);
    }
    assert_eq!(local.check(0), Ok(()));
    local.block(0, 1, 1_000, 6);
    assert!(local.check(0).is_err());
}

#[test]
fn a_violation_names_the_seed_that_replays_it() {
    let error = Error::Invariant { what: "tree 0: a".to_owned(), nanoseconds: 5, seed: 4_711 };
    let shown = error.report().to_string();
    assert!(shown.contains("at 5 ns of its time: tree 0: a"), "{shown}");
    assert!(shown.contains("--seed 4711 replays it"), "{shown}");
}

#[test]
fn a_spread_counts_each_thing() {
    let spread = Spread::new(vec![(3_000_000_000, 1), (1_000_000_000, 98), (2_000_000_000, 1)]);
    assert_eq!(spread, Spread { first: 1.0, half: 1.0, most: 2.0, last: 3.0 });
}

impl SimulationOutcome {
    fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }
}
