//! The room of a host: who waits for it, who is refused, and what is evicted for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use snowmelt_node::{Capacity, Error, InstanceLimits};
use snowmelt_types::{ByteSize, Code, Report, Tenant};

use crate::rig::{Budgets, PLENTY, Rig, call, limits, load, until, with_node};

const TEXT: &str = "def handler(event): return event";

/// Room for two instances with the default limit of 512 MiB, of which each reserves an eighth, and
/// for a zygote beside them, whatever it is measured to have; never for three instances.
const SMALL: Budgets = Budgets {
    capacity: Capacity { memory: ByteSize::mib(190), instances: 10, cpu: None },
    ..PLENTY
};

/// Instances with these limits are not interchangeable with those that have [`limits`].
fn other_limits() -> Arc<InstanceLimits> {
    let limits = limits();
    Arc::new(InstanceLimits { pids: limits.pids + 1, ..(*limits).clone() })
}

/// Reserved memory of functions in MiB, and how many.
fn functions(rig: &Rig) -> (u64, u64) {
    let uses = rig.node.figures().ledger.uses;
    let found = uses.iter().find(|one| one.name == "function");
    found.map_or((0, 0), |found| (found.memory_bytes >> 20, found.instances))
}

#[test]
fn an_instance_reserves_a_part_of_its_limit_until_it_ends() {
    with_node(SMALL, async |rig| {
        let unit = rig.unit(TEXT, &[]).await;
        let lease = rig.lease(&unit, &limits()).await;
        assert_eq!(functions(&rig), (64, 1));
        let zygotes = rig.node.figures().ledger.reserved_instances;
        assert_eq!(zygotes, 2, "an instance and its zygote");
        // An idle one keeps its room, and is taken again without the ledger.
        lease.give_back();
        assert_eq!(functions(&rig), (64, 1));
        let lease = rig.lease(&unit, &limits()).await;
        assert!(!lease.cold);
        drop(lease);
        assert_eq!(functions(&rig), (0, 0));
        rig.lease(&unit, &limits()).await.give_back();
        rig.node.forget(&unit, &limits());
        assert_eq!(functions(&rig), (0, 0));
    });
}

#[test]
fn the_third_instance_waits_until_one_ends() {
    with_node(SMALL, async |rig| {
        let unit = rig.unit(TEXT, &[]).await;
        let first = rig.lease(&unit, &limits()).await;
        let mut second = rig.lease(&unit, &limits()).await;
        let limits = limits();
        let third = rig.node.lease_instance(&unit, &limits);
        let ending = async {
            until("the third waits", || rig.node.figures().ledger.waiting == 1).await;
            drop(first);
        };
        let (third, ()) = tokio::join!(third, ending);
        assert_eq!(call(&mut third.unwrap(), json!(3)).await.unwrap(), 3);
        assert_eq!(call(&mut second, json!(2)).await.unwrap(), 2);
        let ledger = rig.node.figures().ledger;
        assert_eq!((ledger.waiting, ledger.waited, ledger.refused), (0, 1, 0));
    });
}

#[test]
fn an_instance_that_becomes_idle_makes_room_for_who_waits() {
    with_node(SMALL, async |rig| {
        let unit = rig.unit(TEXT, &[]).await;
        let first = rig.lease(&unit, &limits()).await;
        let _second = rig.lease(&unit, &limits()).await;
        let limits = other_limits();
        let third = rig.node.lease_instance(&unit, &limits);
        let ending = async {
            until("the third waits", || rig.node.figures().ledger.waiting == 1).await;
            first.give_back();
        };
        let (third, ()) = tokio::join!(third, ending);
        assert!(third.unwrap().cold);
        assert_eq!(rig.node.figures().handlers.idle, 0);
    });
}

#[test]
fn what_is_idle_is_evicted_for_a_new_instance() {
    with_node(SMALL, async |rig| {
        let unit = rig.unit(TEXT, &[]).await;
        let idle = [rig.lease(&unit, &limits()).await, rig.lease(&unit, &limits()).await];
        idle.into_iter().for_each(|lease| lease.give_back());
        assert_eq!(rig.node.figures().handlers.idle, 2);
        let begun = Instant::now();
        let mut other = rig.lease(&unit, &other_limits()).await;
        assert_eq!(call(&mut other, json!(1)).await.unwrap(), 1);
        let figures = rig.node.figures();
        assert_eq!((figures.handlers.idle, figures.handlers.evicted), (1, 1));
        assert_eq!(figures.ledger.waited, 0, "{:?}", begun.elapsed());
        // One that needs the room of all.
        drop(other);
        let double = InstanceLimits { memory: ByteSize::mib(1024), ..(*limits()).clone() };
        let _large = rig.lease(&unit, &Arc::new(double)).await;
        assert_eq!((functions(&rig), rig.node.figures().handlers.idle), ((128, 1), 0));
    });
}

/// The deadline is part of what is tested, so this takes half a minute.
#[test]
fn an_instance_is_refused_at_its_deadline_and_learns_what_is_taken() {
    with_node(SMALL, async |rig| {
        let unit = rig.unit(TEXT, &[]).await;
        let _held = [rig.lease(&unit, &limits()).await, rig.lease(&unit, &limits()).await];
        let other: Tenant = "other".parse().unwrap();
        let theirs = rig.unit_of(&other, TEXT, &[]).await;
        let begun = Instant::now();
        let limits = limits();
        let (own, theirs) = tokio::join!(
            rig.node.lease_instance(&unit, &limits),
            rig.node.lease_instance(&theirs, &limits),
        );
        assert!(begun.elapsed() >= Duration::from_secs(30), "{:?}", begun.elapsed());
        let own = own.unwrap_err().report();
        let theirs = theirs.unwrap_err().report();
        for report in [&own, &theirs] {
            assert_eq!(report.known_code(), Code::NO_ROOM, "{report}");
            assert!(report.retryable);
            assert!(report.message.contains("this host has 190 MiB for 10 sandboxes"), "{report}");
            assert!(report.to_string().contains("`snowmelt top`"), "{report}");
        }
        assert!(own.message.contains("an instance of a function needs 64 MiB"), "{own}");
        let taken = "functions of `default` have 128 MiB and 2 sandboxes";
        assert!(own.message.contains(taken), "{own}");
        // What others run is not told one by one.
        assert!(theirs.message.contains("others have"), "{theirs}");
        assert!(!theirs.message.contains("default"), "{theirs}");
        assert_eq!(rig.node.figures().ledger.refused, 2);
    });
}

#[test]
fn an_instance_that_never_fits_is_refused_at_once() {
    with_node(SMALL, async |rig| {
        let unit = rig.unit(TEXT, &[]).await;
        let idle = rig.lease(&unit, &limits()).await;
        idle.give_back();
        let limits = InstanceLimits { memory: ByteSize::mib(4096), ..(*limits()).clone() };
        let begun = Instant::now();
        let refused = rig.node.lease_instance(&unit, &Arc::new(limits)).await.unwrap_err();
        assert!(matches!(&refused, Error::NoRoom(no_room) if no_room.is_too_large()), "{refused}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        assert_eq!(rig.node.figures().handlers.idle, 1, "nothing is evicted in vain");
    });
}

#[test]
fn of_many_that_are_asked_for_at_once_those_with_room_start() {
    with_node(SMALL, async |rig| {
        let unit = rig.unit(TEXT, &[]).await;
        let leases = rig.node.lease_instances(&unit, &limits(), 5).await;
        let is_full = |lease: &Result<_, Error>| matches!(lease, Err(Error::NoRoom(_)));
        assert_eq!(leases.iter().filter(|lease| lease.is_ok()).count(), 2);
        assert_eq!(leases.iter().filter(|lease| is_full(lease)).count(), 3);
    });
}

#[test]
fn what_is_prewarmed_takes_no_room_from_others() {
    with_node(SMALL, async |rig| {
        let unit = rig.unit(TEXT, &[]).await;
        let first = rig.lease(&unit, &limits()).await;
        rig.lease(&unit, &limits()).await.give_back();
        rig.node.prewarm(&unit, &other_limits(), &load(), 1);
        tokio::time::sleep(Duration::from_millis(500)).await;
        let figures = rig.node.figures();
        assert_eq!((figures.prewarmed, figures.handlers.idle), (0, 1));
        assert_eq!((figures.ledger.waiting, figures.ledger.refused), (0, 0));
        drop(first);
    });
}
