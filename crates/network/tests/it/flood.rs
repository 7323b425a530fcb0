//! The flood of one tenant does not reach others, and a job that runs out of ports does not affect
//! others.

use std::net::{IpAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use snowmelt_network::JobNetwork;

use crate::harness::*;

/// Datagrams to send before the neighbour is tested.
const SENT: u64 = 20_000;

/// Sends to all addresses that a function could know, until it is stopped.
fn flood(job: &JobNetwork, targets: &[IpAddr], sent: &AtomicU64, stop: &AtomicBool) {
    let from = job.address(1).unwrap().v4;
    within(job.namespace(), || {
        let socket = UdpSocket::bind((from, 0)).unwrap();
        let payload = [0x55; 1200];
        while !stop.load(Ordering::Relaxed) {
            for target in targets {
                // Without a route, or without buffer space, it is refused.
                let _ = socket.send_to(&payload, (*target, 9000));
                sent.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
}

#[test]
fn a_flood_does_not_reach_another_job_which_goes_on_working() {
    if !is_root() {
        return;
    }
    let mut underlay = Underlay::new();
    let hosts = [underlay.host(), underlay.host()];
    let hosts = hosts.each_ref();
    let loud = job("a", 1, &hosts);
    let quiet = job("b", 2, &hosts);
    // The neighbour's listening addresses on both hosts, which the job has too, and the hosts'.
    let functions: Vec<_> = quiet.iter().map(|part| part.address(0).unwrap().v4).collect();
    let listening: Vec<_> = quiet
        .iter()
        .zip(&functions)
        .map(|(part, own)| within(part.namespace(), || UdpSocket::bind((*own, 9000)).unwrap()))
        .collect();
    let mut targets: Vec<IpAddr> = functions.iter().map(|own| (*own).into()).collect();
    targets.extend(hosts.map(|host| host.address));
    let sent = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for part in &loud {
            scope.spawn(|| flood(part, &targets, &sent, &stop));
        }
        wait_until("there is a flood", || sent.load(Ordering::Relaxed) > SENT);
        let ends = [(&quiet[0], functions[0].into()), (&quiet[1], functions[1].into())];
        for _ in 0..20 {
            assert_eq!(tcp(ends[0], ends[1]).unwrap(), "hello");
        }
        stop.store(true, Ordering::Relaxed);
    });
    for socket in &listening {
        assert!(!arrives(socket));
    }
}

#[test]
fn a_job_out_of_ports_takes_none_from_another_with_the_same_addresses() {
    if !is_root() {
        return;
    }
    let mut underlay = Underlay::new();
    let host = underlay.host();
    let greedy = job("a", 1, &[&host]).remove(0);
    let other = job("b", 2, &[&host]).remove(0);
    for job in [&greedy, &other] {
        within(job.namespace(), || {
            std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40009").unwrap();
        });
    }
    let own = greedy.address(0).unwrap().v4;
    let bind = |job: &JobNetwork| within(job.namespace(), || TcpListener::bind((own, 0)));
    let taken: Vec<_> = std::iter::from_fn(|| bind(&greedy).ok()).take(11).collect();
    assert_eq!(taken.len(), 10);
    let refused = bind(&greedy).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::AddrInUse);
    assert!(bind(&other).is_ok());
    drop(taken);
    assert!(bind(&greedy).is_ok());
}
