//! Connectivity and rates of hosts.

use std::net::TcpStream;
use std::time::Duration;

use crate::harness::{Rig, is_root};

#[test]
fn hosts_reach_each_other_and_the_machine_reaches_none() {
    if !is_root() {
        return;
    }
    let rig = Rig::up(3, None);
    assert!(rig.reaches(1, 2) && rig.reaches(3, 1) && rig.reaches(2, 3));
    let host = rig.host(2).address;
    assert!(TcpStream::connect_timeout(&host, Duration::from_millis(300)).is_err());
}

#[test]
fn a_link_carries_no_more_than_its_rate() {
    if !is_root() {
        return;
    }
    let rig = Rig::up(2, Some("20mbit"));
    // 2 MiB at 20 Mbit/s, less the burst of 128 KiB at either end.
    let least = Duration::from_secs_f64(((2 << 20) - (2 << 17)) as f64 * 8.0 / 20e6);
    let took = rig.sends(1, 2, 2 << 20).unwrap();
    assert!(took >= least, "{took:?} is less than {least:?}");
}

#[test]
fn a_second_lab_has_the_same_addresses_and_is_isolated() {
    if !is_root() {
        return;
    }
    let one = Rig::up(2, None);
    let other = Rig::up(1, None);
    assert!(one.reaches(1, 2));
    assert_eq!(one.host(1).address, other.host(1).address);
    let isolated = std::thread::scope(|scope| {
        let tried = scope.spawn(|| {
            other.lab.enter(&other.host(1).machine).unwrap();
            TcpStream::connect_timeout(&one.host(2).address, Duration::from_millis(300)).is_err()
        });
        tried.join().unwrap()
    });
    assert!(isolated);
}
