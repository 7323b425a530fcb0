//! Functions on several hosts reach each other, and nothing else.

use std::net::{IpAddr, TcpListener, UdpSocket};

use snowmelt_network::{Error, Listener, TracedRoute, Transport};

use crate::harness::*;

#[test]
fn functions_reach_each_other_across_hosts_and_on_one() {
    if !is_root() {
        return;
    }
    let mut underlay = Underlay::new();
    let hosts: Vec<_> = (0..3).map(|_| underlay.host()).collect();
    let mut networks = job("a", 42, &hosts.iter().collect::<Vec<_>>());
    for network in &mut networks {
        assert_eq!(network.ready(TIMEOUT).unwrap().len(), 2);
        assert_eq!(network.mtu().unwrap(), 1450);
    }
    let at = |host: usize, slot: u32| networks[host].address(slot).unwrap();
    for (from, to) in [((0, 0), (1, 0)), ((2, 999), (0, 16_000)), ((1, 5), (1, 6))] {
        let source = at(from.0, from.1);
        let target = at(to.0, to.1);
        for (source, target) in [
            (IpAddr::from(source.v4), IpAddr::from(target.v4)),
            (IpAddr::from(source.v6), IpAddr::from(target.v6)),
        ] {
            let sent = tcp((&networks[from.0], source), (&networks[to.0], target));
            assert_eq!(sent.unwrap(), "hello", "{source} to {target}");
        }
    }
}

#[test]
fn tenants_with_the_same_addresses_on_the_same_hosts_are_apart() {
    if !is_root() {
        return;
    }
    let mut underlay = Underlay::new();
    let hosts = [underlay.host(), underlay.host()];
    let mut a = job("a", 1, &hosts.each_ref());
    let mut b = job("b", 2, &hosts.each_ref());
    a[0].ready(TIMEOUT).unwrap();
    b[0].ready(TIMEOUT).unwrap();
    let target = a[1].address(0).unwrap().v4;
    assert_eq!(target, b[1].address(0).unwrap().v4);
    let of_b = within(b[1].namespace(), || UdpSocket::bind((target, 9)).unwrap());
    let of_a = within(a[1].namespace(), || UdpSocket::bind((target, 9)).unwrap());
    let source = a[0].address(0).unwrap().v4;
    within(a[0].namespace(), || {
        let socket = UdpSocket::bind((source, 0)).unwrap();
        for _ in 0..100 {
            socket.send_to(b"flood", (target, 9)).unwrap();
        }
    });
    assert!(arrives(&of_a));
    assert!(!arrives(&of_b));
}

#[test]
fn nothing_outside_the_job_is_reached() {
    if !is_root() {
        return;
    }
    let mut underlay = Underlay::new();
    let hosts = [underlay.host(), underlay.host()];
    let networks = job("a", 1, &hosts.each_ref());
    let source = networks[0].address(0).unwrap();
    let outside = ["169.254.169.254", "192.0.2.1", "192.0.2.2", "8.8.8.8", "10.77.200.1"];
    for target in outside.map(|text| text.parse::<IpAddr>().unwrap()) {
        let error = within(networks[0].namespace(), || {
            connect_from(source.v4.into(), (target, 80).into()).unwrap_err()
        });
        let unreachable = std::io::ErrorKind::NetworkUnreachable;
        assert_eq!(error.kind(), unreachable, "{target}: {error}");
    }
}

#[test]
fn a_host_that_does_not_answer_in_time_is_named() {
    if !is_root() {
        return;
    }
    let mut underlay = Underlay::new();
    let hosts = [underlay.host(), underlay.host(), underlay.host()];
    let all = parts(&hosts.each_ref());
    let mut first = hosts[0].networks.create(spec("a", 1, &all[0], &all)).unwrap();
    let _second = hosts[1].networks.create(spec("a", 1, &all[1], &all)).unwrap();
    let within = std::time::Duration::from_millis(300);
    match first.ready(within).unwrap_err() {
        Error::Unreachable { missing, .. } => assert_eq!(missing, [hosts[2].address]),
        other => panic!("{other}"),
    }
    // It leaves the job; the others are not affected.
    first.remove_peer(hosts[2].address).unwrap();
    first.ready(TIMEOUT).unwrap();
}

#[test]
fn listeners_are_found_by_address_and_port() {
    if !is_root() {
        return;
    }
    let mut underlay = Underlay::new();
    let host = underlay.host();
    let mut networks = job("a", 1, &[&host]);
    let one = networks[0].address(0).unwrap();
    let two = networks[0].address(1).unwrap();
    let (stream, datagram) = within(networks[0].namespace(), || {
        let stream = TcpListener::bind((one.v4, 80)).unwrap();
        (stream, UdpSocket::bind((one.v6, 80)).unwrap())
    });
    let mut at = |to: IpAddr, port| networks[0].listeners(to, port).unwrap();
    let listener = |transport, address| vec![Listener { transport, address }];
    assert_eq!(at(one.v4.into(), 80), listener(Transport::Tcp, one.v4.into()));
    assert_eq!(at(one.v6.into(), 80), listener(Transport::Udp, one.v6.into()));
    assert_eq!((at(one.v4.into(), 81), at(two.v4.into(), 80)), (vec![], vec![]));
    drop((stream, datagram));
    assert_eq!(at(one.v4.into(), 80), vec![]);
}

#[test]
fn the_traced_route_is_the_kernels() {
    if !is_root() {
        return;
    }
    let mut underlay = Underlay::new();
    let hosts = [underlay.host(), underlay.host()];
    let mut networks = job("a", 1, &hosts.each_ref());
    networks[0].ready(TIMEOUT).unwrap();
    let here = networks[0].address(0).unwrap();
    let there = networks[1].address(5).unwrap();
    let mut route = |to: IpAddr| networks[0].trace(to, TIMEOUT).unwrap();
    assert_eq!(route(here.v4.into()), TracedRoute::Local);
    assert_eq!(route(here.v6.into()), TracedRoute::Local);
    for to in [IpAddr::from(there.v4), IpAddr::from(there.v6)] {
        let TracedRoute::Host { host, mac, round_trip, .. } = route(to) else { panic!("{to}") };
        assert_eq!((host, mac.as_str()), (hosts[1].address, "02:73:0a:4d:40:00"));
        assert!(round_trip.is_some());
    }
    assert_eq!(
        route("8.8.8.8".parse().unwrap()),
        TracedRoute::Unreachable { missing: "a route".into() }
    );
    networks[0].remove_peer(hosts[1].address).unwrap();
    let gone = networks[0].trace(there.v4.into(), TIMEOUT).unwrap();
    assert_eq!(gone, TracedRoute::Unreachable { missing: "a route".into() });
}
