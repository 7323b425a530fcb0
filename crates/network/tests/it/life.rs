//! When a job ends or a node dies, nothing is left, and the leases show it.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use snowmelt_network::{Allow, Egress, Error, JobSpec, Networks, Options, Unsent};

use crate::harness::*;

#[test]
fn a_callers_namespace_is_configured_and_outlives_its_network() {
    if !is_root() {
        return;
    }
    let mut underlay = Underlay::new();
    let hosts = [underlay.host(), underlay.host()];
    let all = parts(&hosts.each_ref());
    let made = fresh_namespace();
    let inside = made.try_clone().unwrap();
    let mut one = create_in(&hosts[0], spec("a", 4, &all[0], &all), inside).unwrap();
    let other = hosts[1].networks.create(spec("a", 4, &all[1], &all)).unwrap();
    one.ready(TIMEOUT).unwrap();
    assert_eq!(one.counters().crossings, 1);
    assert_eq!(
        rustix::fs::fstat(&made).unwrap().st_ino,
        rustix::fs::fstat(one.namespace()).unwrap().st_ino
    );
    let source = one.address(0).unwrap().v4;
    let target = other.address(0).unwrap().v4;
    assert_eq!(tcp((&one, source.into()), (&other, target.into())).unwrap(), "hello");
    assert!(one.close(std::time::Duration::from_millis(50)).is_err());
    drop(made);
    let again = hosts[0].networks.create(spec("a", 4, &all[0], &all)).unwrap();
    again.close(TIMEOUT).unwrap();
}

/// Like the namespace of a zygote's children, which could not join another one.
#[test]
fn a_namespace_of_another_user_namespace_is_configured() {
    if !is_root() {
        return;
    }
    let mut underlay = Underlay::new();
    let hosts = [underlay.host(), underlay.host()];
    let all = parts(&hosts.each_ref());
    let mut owner = std::process::Command::new("unshare")
        .args(["--user", "--net", "sleep", "60"])
        .spawn()
        .unwrap();
    let path = format!("/proc/{}/ns/net", owner.id());
    let host = std::fs::read_link("/proc/self/ns/net").unwrap();
    wait_until("it is in its own namespace", || std::fs::read_link(&path).unwrap() != host);
    let namespace = std::fs::File::open(&path).unwrap().into();
    let allow = Allow { to: range("192.0.2.0/24"), ports: vec![(80, 80)] };
    let wanted = JobSpec { egress: Egress(vec![allow]), ..spec("a", 4, &all[0], &all) };
    let mut one = create_in(&hosts[0], wanted, namespace).unwrap();
    let other = hosts[1].networks.create(spec("a", 4, &all[1], &all)).unwrap();
    one.ready(TIMEOUT).unwrap();
    let source = one.address(0).unwrap();
    let target = other.address(0).unwrap();
    assert_eq!(tcp((&one, source.v4.into()), (&other, target.v4.into())).unwrap(), "hello");
    assert_eq!(tcp((&one, source.v6.into()), (&other, target.v6.into())).unwrap(), "hello");
    owner.kill().unwrap();
    owner.wait().unwrap();
    one.close(TIMEOUT).unwrap();
}

#[test]
fn a_lease_is_released_when_nothing_of_the_network_is_left() {
    if !is_root() {
        return;
    }
    let mut underlay = Underlay::new();
    let host = underlay.host();
    let network = job("a", 9, &[&host]).remove(0);
    let address = network.address(0).unwrap().v4;
    // Stands for a process of the former tenant that has a socket open.
    let left = within(network.namespace(), || std::net::TcpListener::bind((address, 80)).unwrap());
    let error = network.close(std::time::Duration::from_millis(200)).unwrap_err();
    assert!(error.to_string().contains("is left in it"), "{error}");
    let leases = host.networks.leases().unwrap();
    assert_eq!((leases.len(), leases[0].ending), (1, true));
    drop(left);
    let again = job("b", 9, &[&host]).remove(0);
    assert_eq!(host.networks.leases().unwrap()[0].tenant.as_str(), "b");
    again.close(TIMEOUT).unwrap();
    assert!(host.networks.leases().unwrap().is_empty());
}

/// Each burst with a network once left a file until the node was started again.
#[test]
fn networks_that_have_ended_leave_no_leases_behind() {
    if !is_root() {
        return;
    }
    let mut underlay = Underlay::new();
    let host = underlay.host();
    let leases = host.state.path().join("networks");
    let files = || std::fs::read_dir(&leases).unwrap().count();
    for vni in 10..14 {
        drop(job("a", vni, &[&host]).remove(0));
    }
    let began = std::time::Instant::now();
    let mut vni = 14;
    loop {
        let network = job("a", vni, &[&host]).remove(0);
        let left = files();
        // Its own lease goes with it; those of the others are the next one's to release.
        network.close(TIMEOUT).unwrap();
        if left == 1 {
            break;
        }
        assert!(began.elapsed() < TIMEOUT, "{left} leases are left");
        vni += 1;
    }
}

#[test]
fn a_new_network_has_nothing_of_the_former_tenant() {
    if !is_root() {
        return;
    }
    let mut underlay = Underlay::new();
    let host = underlay.host();
    let all = parts(&[&host]);
    for tenant in ["a", "b"] {
        let mut network = host.networks.create(spec(tenant, 9, &all[0], &all)).unwrap();
        let found = network.contents().unwrap();
        assert_eq!((found.sockets, found.routes, found.neighbours), (0, 2, 0));
        let address = network.address(3).unwrap().v4;
        let kept = within(network.namespace(), || std::net::TcpListener::bind((address, 80)));
        assert_eq!(network.contents().unwrap().sockets, 1);
        drop(kept);
        network.close(TIMEOUT).unwrap();
    }
}

/// `make e2e` kills a real node. A dead node leaves its leases and, while the kernel ends its
/// processes, a namespace with an overlay.
#[test]
fn a_node_that_starts_again_releases_the_leases_of_the_dead_one() {
    if !is_root() {
        return;
    }
    let mut underlay = Underlay::new();
    let host = underlay.host();
    let network = job("a", 9, &[&host]).remove(0);
    let address = network.address(0).unwrap().v4;
    let left = within(network.namespace(), || std::net::TcpListener::bind((address, 80)).unwrap());
    // The lease as a node that was killed leaves it.
    let mut lease = host.networks.leases().unwrap().remove(0);
    drop(network);
    lease.ending = false;
    let file = host.state.path().join("networks/9.json");
    std::fs::write(&file, serde_json::to_vec(&lease).unwrap()).unwrap();
    let again: Networks =
        within(host.namespace.as_fd(), || Networks::open(Options::new(host.state.path())).unwrap());
    assert_eq!(again.leases().unwrap().len(), 1);
    let all = parts(&[&host]);
    let taken = again.create(spec("b", 9, &all[0], &all)).unwrap_err();
    assert!(matches!(taken, Error::Taken { .. }), "{taken}");
    drop(left);
    let next = again.create(spec("b", 9, &all[0], &all)).unwrap();
    next.close(TIMEOUT).unwrap();
    assert!(!file.exists());
}

#[test]
fn a_namespace_configured_in_advance_serves_a_job_if_it_is_unused() {
    if !is_root() {
        return;
    }
    let mut underlay = Underlay::new();
    let host = underlay.host();
    let all = parts(&[&host]);
    let made = fresh_namespace();
    let mut configured = host.networks.configure(made.try_clone().unwrap()).unwrap();
    assert!(configured.is_unused());
    assert_eq!(devices(&host), Vec::<String>::new());
    let socket = within(made.as_fd(), || std::net::UdpSocket::bind("[::]:0").unwrap());
    assert!(!configured.is_unused());
    drop((socket, made));
    assert!(configured.is_unused());
    let network = host.networks.create_configured(spec("a", 3, &all[0], &all), configured).unwrap();
    let own = network.address(0).unwrap().v4;
    assert_eq!(tcp((&network, own.into()), (&network, own.into())).unwrap(), "hello");
    network.close(TIMEOUT).unwrap();
}

/// A connection whose peer has vanished would keep its namespace until the kernel stops
/// retransmitting.
#[test]
fn a_connection_whose_peer_has_vanished_does_not_keep_the_namespace() {
    if !is_root() {
        return;
    }
    let mut underlay = Underlay::new();
    let hosts = [underlay.host(), underlay.host()];
    let mut networks = job("a", 4, &hosts.each_ref());
    let other = networks.pop().unwrap();
    let one = networks.pop().unwrap();
    let target = other.address(0).unwrap().v4;
    let listener =
        within(other.namespace(), || std::net::TcpListener::bind((target, 5000)).unwrap());
    let source = one.address(0).unwrap().v4;
    let mut stream =
        within(one.namespace(), || connect_from(source.into(), (target, 5000).into()).unwrap());
    let (accepted, _) = listener.accept().unwrap();
    drop((listener, accepted));
    other.close(TIMEOUT).unwrap();
    // It has received the close of its peer, and sends data that is never acknowledged.
    drop(std::io::Write::write_all(&mut stream, &[7; 1000]));
    drop(stream);
    one.close(TIMEOUT).unwrap();
}

/// The last data of a function counts as unsent until its peer has acknowledged it.
#[test]
fn the_last_data_is_unsent_until_it_is_acknowledged() {
    if !is_root() {
        return;
    }
    const LENGTH: usize = 16 << 20;
    let mut underlay = Underlay::new();
    let hosts = [underlay.host(), underlay.host()];
    let mut networks = job("a", 4, &hosts.each_ref());
    let other = networks.pop().unwrap();
    let mut one = networks.pop().unwrap();
    let target = other.address(0).unwrap().v4;
    let listener =
        within(other.namespace(), || std::net::TcpListener::bind((target, 5000)).unwrap());
    assert_eq!(one.unsent().unwrap(), Unsent::default());
    let source = one.address(0).unwrap().v4;
    let mut stream =
        within(one.namespace(), || connect_from(source.into(), (target, 5000).into()).unwrap());
    let (mut accepted, _) = listener.accept().unwrap();
    assert_eq!(one.unsent().unwrap(), Unsent { bytes: 0, connections: 1 });
    let reader = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        let mut read = Vec::new();
        std::io::Read::read_to_end(&mut accepted, &mut read).unwrap();
        read.len()
    });
    std::io::Write::write_all(&mut stream, &vec![7; LENGTH]).unwrap();
    drop(stream);
    let deadline = Instant::now() + TIMEOUT;
    while one.unsent().unwrap() != Unsent::default() {
        assert!(Instant::now() < deadline, "{:?}", one.unsent());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(reader.join().unwrap(), LENGTH);
    drop(listener);
    one.close(TIMEOUT).unwrap();
    other.close(TIMEOUT).unwrap();
}
