//! A network costs the same for any number of functions, and exists completely or not at all.

use std::os::fd::{AsFd, BorrowedFd};

use snowmelt_network::{Counters, Error};

use crate::harness::*;

#[test]
fn costs_the_same_for_10_and_for_10_000_functions() {
    if !is_root() {
        return;
    }
    let mut underlay = Underlay::new();
    let first = underlay.host();
    let second = underlay.host();
    let all = parts(&[&first, &second]);
    let mut seen = Vec::new();
    for (functions, vni) in [(10u32, 1), (1_000, 2), (10_000, 3)] {
        let network = first.networks.create(spec("a", vni, &all[0], &all)).unwrap();
        for slot in 0..functions {
            network.address(slot).unwrap();
        }
        let last = network.address(functions - 1).unwrap();
        within(network.namespace(), || {
            std::net::TcpListener::bind((last.v4, 80)).unwrap();
            std::net::TcpListener::bind((last.v6, 80)).unwrap();
        });
        seen.push(network.counters());
    }
    let expected = Counters { messages: 14, batches: 5, crossings: 1, moves: 0 };
    assert_eq!(seen, [expected; 3]);
}

#[test]
fn another_host_costs_four_messages_and_does_not_touch_other_hosts() {
    if !is_root() {
        return;
    }
    let mut underlay = Underlay::new();
    let hosts = [underlay.host(), underlay.host(), underlay.host()];
    let all = parts(&hosts.each_ref());
    let mut network = hosts[0].networks.create(spec("a", 5, &all[0], &all[..2])).unwrap();
    let before = (network.counters(), network.contents().unwrap());
    network.add_peer(all[2]).unwrap();
    let after = (network.counters(), network.contents().unwrap());
    assert_eq!(after.0.messages, before.0.messages + 4);
    assert_eq!(after.0.crossings, before.0.crossings);
    assert_eq!(after.1.routes, before.1.routes + 2);
    assert_eq!(after.1.neighbours, before.1.neighbours + 2);
    network.remove_peer(all[2].host).unwrap();
    network.remove_peer(all[2].host).unwrap();
    assert_eq!(network.contents().unwrap(), before.1);
    let twice = network.add_peer(all[1]).unwrap_err();
    assert!(matches!(twice, Error::Spec { .. }), "{twice}");
}

#[test]
fn an_overlay_that_is_in_use_is_refused_and_nothing_is_left() {
    if !is_root() {
        return;
    }
    let mut underlay = Underlay::new();
    let host = underlay.host();
    let all = parts(&[&host]);
    let network = host.networks.create(spec("a", 5, &all[0], &all)).unwrap();
    let taken = host.networks.create(spec("b", 5, &all[0], &all)).unwrap_err();
    assert!(matches!(taken, Error::Taken { .. }), "{taken}");
    // Another node on the same host does not know its lease: then the kernel refuses.
    let state = tempfile::tempdir().unwrap();
    let other = open(host.namespace.as_fd(), state.path());
    let refused = other.create(spec("b", 5, &all[0], &all)).unwrap_err();
    assert!(refused.to_string().contains("make the overlay's device"), "{refused}");
    wait_until("only the first network's device exists", || devices(&host).len() == 1);
    assert!(other.leases().unwrap().is_empty());
    network.close(TIMEOUT).unwrap();
    assert_eq!(devices(&host), Vec::<String>::new());
}

#[test]
fn an_address_that_is_not_the_hosts_is_refused_and_nothing_is_left() {
    if !is_root() {
        return;
    }
    let mut underlay = Underlay::new();
    let host = underlay.host();
    let mut all = parts(&[&host]);
    all[0].host = "192.0.2.200".parse().unwrap();
    let refused = host.networks.create(spec("a", 5, &all[0], &all)).unwrap_err();
    assert_eq!(refused.to_string(), "192.0.2.200 is not an address of this host");
    wait_until("no device is left", || devices(&host).is_empty());
    assert!(host.networks.leases().unwrap().is_empty());
}

/// Runs iproute2 in a namespace.
fn ip(namespace: BorrowedFd<'_>, arguments: &str) {
    let done = within(namespace, || {
        std::process::Command::new("ip").args(arguments.split(' ')).status().unwrap()
    });
    assert!(done.success(), "ip {arguments}");
}

/// An obstacle for each step, in a namespace that should be empty: the kernel refuses that step and
/// none before it.
#[test]
fn a_failing_step_is_named_and_nothing_is_left() {
    if !is_root() {
        return;
    }
    let mut underlay = Underlay::new();
    let hosts = [underlay.host(), underlay.host()];
    let host = &hosts[0];
    let all = parts(&hosts.each_ref());
    for (step, obstacle) in [
        ("make the pair of devices", "link add egress0 type veth peer name other"),
        ("make the overlay's device", "link add overlay0 type veth peer name other"),
        ("make the host's addresses local", "route add local 10.77.0.0/18 dev lo table local"),
        ("make the host's addresses local", "-6 route add local fd77::/114 dev lo table local"),
        ("add the route to a host", "route add unreachable 10.77.64.0/18"),
    ] {
        let namespace = fresh_namespace();
        ip(namespace.as_fd(), "link set lo up");
        // The kernel removes a device's routes with its last address.
        ip(namespace.as_fd(), "addr add 198.51.100.1/32 dev lo");
        ip(namespace.as_fd(), obstacle);
        let wanted = spec("a", 8, &all[0], &all);
        let error = create_in(host, wanted, namespace).unwrap_err();
        assert!(error.to_string().contains(step), "{obstacle}: {error}");
        wait_until("no device is left", || devices(host).is_empty());
        assert!(host.networks.leases().unwrap().is_empty(), "{obstacle}");
    }
    let again = host.networks.create(spec("a", 8, &all[0], &all)).unwrap();
    again.close(TIMEOUT).unwrap();
}
