//! Faults of hosts on demand, and their healing.

use std::time::Duration;

use snowmelt_lab::Fault;

use crate::harness::{Rig, is_root, sleeper, wait_for};

#[test]
fn an_unplugged_host_reaches_no_other_until_it_is_healed() {
    if !is_root() {
        return;
    }
    let rig = Rig::up(3, None);
    rig.lab.fail(&rig.host(2), Fault::Unplug).unwrap();
    assert!(!rig.reaches(1, 2) && !rig.reaches(2, 3) && rig.reaches(1, 3));
    rig.lab.heal(&rig.host(2), &sleeper).unwrap();
    assert!(rig.reaches(1, 2) && rig.reaches(2, 3));
}

#[test]
fn a_partitioned_host_is_reached_by_control_only() {
    if !is_root() {
        return;
    }
    let mut rig = Rig::up(4, None);
    let (two, three) = (rig.host(2), rig.host(3));
    rig.lab.fail(&two, Fault::Partition).unwrap();
    rig.lab.fail(&three, Fault::Partition).unwrap();
    assert!(rig.reaches(1, 2) && rig.reaches(2, 1) && rig.reaches(1, 3));
    assert!(!rig.reaches(2, 3) && !rig.reaches(4, 2) && !rig.reaches(3, 4));
    rig.lab.heal(&two, &sleeper).unwrap();
    assert!(rig.reaches(4, 2) && rig.reaches(2, 4));
    assert!(!rig.reaches(2, 3) && !rig.reaches(4, 3), "the other one stays partitioned");
    rig.lab.add(1, &sleeper).unwrap();
    assert!(rig.reaches(5, 2) && !rig.reaches(5, 3), "from hosts added later too");
    rig.lab.heal(&three, &sleeper).unwrap();
    assert!(rig.reaches(2, 3) && rig.reaches(5, 3));
}

#[test]
fn a_slow_host_has_a_hundredth_of_its_rate() {
    if !is_root() {
        return;
    }
    let rig = Rig::up(2, Some("1gbit"));
    rig.lab.fail(&rig.host(2), Fault::Slow).unwrap();
    let least = Duration::from_secs_f64(((1 << 20) - (2 << 17)) as f64 * 8.0 / 10e6);
    let took = rig.sends(1, 2, 1 << 20).unwrap();
    assert!(took >= least, "{took:?} is less than {least:?}");
    assert_eq!(rig.lab.states().unwrap()[1].faults, [Fault::Slow]);
    rig.lab.heal(&rig.host(2), &sleeper).unwrap();
    assert!(rig.reaches(1, 2));
    assert_eq!(rig.lab.states().unwrap()[1].faults, []);
}

#[test]
fn a_killed_host_runs_again_when_it_is_healed() {
    if !is_root() {
        return;
    }
    let rig = Rig::up(2, None);
    rig.lab.fail(&rig.host(2), Fault::Kill).unwrap();
    wait_for("the process to end", || rig.running() == [true, false]);
    // A second kill does not hit another process.
    rig.lab.fail(&rig.host(2), Fault::Kill).unwrap();
    assert!(rig.reaches(1, 2), "its network stays");
    rig.lab.heal(&rig.host(2), &sleeper).unwrap();
    assert_eq!(rig.running(), [true, true]);
}
