//! A job reaches the destinations of its policy, and neither its host nor any other.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use snowmelt_network::{Allow, Egress, JobNetwork};

use crate::harness::*;

/// Two hosts: a job with a policy on the first one, and servers outside it on the second one.
struct Rig {
    hosts: [Host; 2],
    _underlay: Underlay,
}

impl Rig {
    fn new() -> Self {
        let mut underlay = Underlay::new();
        let hosts = [underlay.host(), underlay.host()];
        Self { hosts, _underlay: underlay }
    }

    fn job(&self, vni: u32, allow: &[(&str, &[(u16, u16)])]) -> JobNetwork {
        let all = parts(&[&self.hosts[0]]);
        let allow = allow.iter().map(|(to, ports)| Allow { to: range(to), ports: ports.to_vec() });
        let egress = Egress(allow.collect());
        let spec = snowmelt_network::JobSpec { egress, ..spec("a", vni, &all[0], &all) };
        self.hosts[0].networks.create(spec).unwrap()
    }

    /// A server on a host.
    fn serve(&self, host: usize, port: u16) -> TcpListener {
        let host = &self.hosts[host];
        within(host.namespace.as_fd(), || TcpListener::bind((host.address, port)).unwrap())
    }

    /// Connects from the first function of a job; returns the kernel's result.
    fn connect(job: &JobNetwork, to: IpAddr, port: u16) -> Result<(), ErrorKind> {
        let from = job.address(0).unwrap().v4;
        let done = within(job.namespace(), || connect_from(from.into(), (to, port).into()));
        done.map(drop).map_err(|error| error.kind())
    }
}

#[test]
fn policy_destinations_are_reached_with_the_hosts_address() {
    if !is_root() {
        return;
    }
    let rig = Rig::new();
    let outside = rig.hosts[1].address;
    let job = rig.job(1, &[("192.0.2.0/24", &[(80, 80), (8000, 8010)])]);
    for port in [80, 8005] {
        let server = rig.serve(1, port);
        assert_eq!(Rig::connect(&job, outside, port), Ok(()));
        let (_, sender) = server.accept().unwrap();
        assert_eq!(sender.ip(), rig.hosts[0].address);
    }
    let _closed = rig.serve(1, 22);
    assert_eq!(Rig::connect(&job, outside, 22), Err(ErrorKind::HostUnreachable));
    assert_eq!(Rig::connect(&job, "198.51.100.1".parse().unwrap(), 80), unreachable());
}

fn unreachable() -> Result<(), ErrorKind> {
    Err(ErrorKind::NetworkUnreachable)
}

#[test]
fn no_policy_reaches_the_host_another_job_or_credentials() {
    if !is_root() {
        return;
    }
    let rig = Rig::new();
    let everything: &[(&str, &[(u16, u16)])] = &[("0.0.0.0/0", &[])];
    let one = rig.job(1, everything);
    let other = rig.job(2, everything);
    let _on_host = rig.serve(0, 80);
    let inside = within(other.namespace(), || TcpListener::bind("0.0.0.0:80").unwrap());
    let _server = rig.serve(1, 80);
    assert_eq!(Rig::connect(&one, rig.hosts[1].address, 80), Ok(()));
    let refused = [
        rig.hosts[0].address.to_string(),
        "169.254.169.254".to_owned(),
        // Both ends of the pairs of both jobs.
        "100.64.0.0".to_owned(),
        "100.64.0.2".to_owned(),
        "100.64.0.3".to_owned(),
    ];
    for target in refused {
        let target: IpAddr = target.parse().unwrap();
        assert!(Rig::connect(&one, target, 80).is_err(), "{target}");
    }
    drop(inside);
}

#[test]
fn connections_from_outside_are_refused() {
    if !is_root() {
        return;
    }
    let rig = Rig::new();
    let job = rig.job(1, &[("0.0.0.0/0", &[])]);
    let own = job.address(0).unwrap().v4;
    let _inside = within(job.namespace(), || TcpListener::bind((own, 80)).unwrap());
    let end: SocketAddr = "100.64.0.1:80".parse().unwrap();
    let from_host = within(rig.hosts[0].namespace.as_fd(), || {
        connect_from(IpAddr::from([100, 64, 0, 0]), end).map(drop)
    });
    assert!(from_host.is_err());
}

/// Multicast needs neither a route nor an address of the device, and no policy names IPv6.
#[test]
fn ipv6_does_not_leave_a_job_whatever_the_policy() {
    if !is_root() {
        return;
    }
    let rig = Rig::new();
    let job = rig.job(1, &[("0.0.0.0/0", &[])]);
    let receiver = within(rig.hosts[0].namespace.as_fd(), || UdpSocket::bind("[::]:9000").unwrap());
    let own = job.address(0).unwrap().v6;
    // The job's end of the pair is the second device of its namespace.
    let target = |address: &str| SocketAddrV6::new(address.parse().unwrap(), 9000, 0, 2);
    let send = |address: &str| {
        within(job.namespace(), || {
            UdpSocket::bind((own, 0)).unwrap().send_to(b"hello", target(address)).map(drop)
        })
    };
    assert!(send("ff02::1").is_err(), "the device has no IPv6");
    assert!(!arrives(&receiver));
    // The host accepts none either, even if the device has IPv6.
    let setting = "/proc/sys/net/ipv6/conf/egress0/disable_ipv6";
    within(job.namespace(), || std::fs::write(setting, "0").unwrap());
    for address in ["ff02::1", "ff05::1", "fe80::1"] {
        drop(send(address));
        assert!(!arrives(&receiver), "{address}");
    }
}

#[test]
fn rules_on_the_host_are_removed_with_the_node() {
    if !is_root() {
        return;
    }
    let rig = Rig::new();
    let job = rig.job(1, &[("192.0.2.0/24", &[])]);
    let [host, _] = rig.hosts;
    let Host { namespace, networks, .. } = host;
    assert_eq!(tables(&namespace), 2, "one of IPv4 and one of both families");
    drop((job, networks));
    assert_eq!(tables(&namespace), 0);
}

/// How many tables of rules a namespace has.
fn tables(namespace: &std::os::fd::OwnedFd) -> usize {
    use snowmelt_network::netlink::{Batch, NLM_F_DUMP, Socket};
    const GET_TABLE: u16 = 10 << 8 | 1;
    within(namespace.as_fd(), || {
        let mut socket = Socket::open(Some(rustix::net::netlink::NETFILTER)).unwrap();
        let mut batch = Batch::new();
        batch.add("list tables", GET_TABLE, NLM_F_DUMP, &[0; 4], |_| {});
        socket.ask(batch).unwrap().len()
    })
}

#[test]
fn a_policy_costs_the_same_for_any_number_of_functions() {
    if !is_root() {
        return;
    }
    let rig = Rig::new();
    let mut seen = Vec::new();
    for vni in [1, 2] {
        let job = rig.job(vni, &[("0.0.0.0/0", &[])]);
        for slot in 0..(vni * 5000) {
            job.address(slot).unwrap();
        }
        seen.push(job.counters());
    }
    assert_eq!(seen[0], seen[1]);
}

/// An overlay packet that contains a datagram for port 9000 of a function: Ethernet, IPv4 and UDP
/// after the VXLAN header (RFC 7348).
fn forged(vni: u32, to: &JobNetwork, from: [u8; 4]) -> Vec<u8> {
    let target = to.address(0).unwrap().v4.octets();
    let base = to.spec().own_address().octets();
    let mut frame = vec![0x08, 0, 0, 0];
    frame.extend((vni << 8).to_be_bytes());
    frame.extend([0x02, 0x73].iter().chain(&base));
    frame.extend([0x02, 0, 0, 0, 0, 9, 0x08, 0]);
    let mut header = [[0x45, 0, 0, 33], [0, 0, 0, 0], [64, 17, 0, 0], from, target].concat();
    let words = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    header[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    frame.extend(header);
    frame.extend([9000u16, 9000, 13, 0].iter().flat_map(|field| field.to_be_bytes()));
    frame.extend(b"false");
    frame
}

/// Overlays do not authenticate: a sender of UDP to a host could send into any job there.
#[test]
fn no_policy_lets_a_job_forge_packets_of_another() {
    if !is_root() {
        return;
    }
    let rig = Rig::new();
    let attacker = rig.job(1, &[("0.0.0.0/0", &[])]);
    let [host, other] = &rig.hosts;
    let victim = job("b", 2, &[other]).remove(0);
    let target = victim.address(0).unwrap().v4;
    let receiver = within(victim.namespace(), || UdpSocket::bind((target, 9000)).unwrap());
    let packet = forged(2, &victim, [10, 77, 99, 1]);
    let send = |namespace: BorrowedFd<'_>, from: IpAddr| {
        within(namespace, || {
            let socket = UdpSocket::bind((from, 0)).unwrap();
            socket.send_to(&packet, (other.address, snowmelt_network::PORT)).map(drop)
        })
    };
    send(host.namespace.as_fd(), host.address).unwrap();
    assert!(arrives(&receiver), "the host itself can send it, so the packet is valid");
    let own = attacker.address(0).unwrap().v4.into();
    let refused = send(attacker.namespace(), own).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    assert!(!arrives(&receiver));
}

/// The limits that [`snowmelt_network::Egress`] documents.
const BURST: u64 = 16_384;
const PER_SECOND: u64 = 1_000;

#[test]
fn one_job_does_not_fill_the_hosts_table_of_connections() {
    if !is_root() {
        return;
    }
    let rig = Rig::new();
    let loud = rig.job(1, &[("192.0.2.0/24", &[])]);
    let from = loud.address(0).unwrap().v4;
    let to = rig.hosts[1].address;
    let begun = std::time::Instant::now();
    within(loud.namespace(), || {
        let socket = UdpSocket::bind((from, 0)).unwrap();
        // Each is a connection of its own; those above the limit are refused.
        (1..=60_000u16).for_each(|port| drop(socket.send_to(b"hello", (to, port))));
    });
    let known = within(rig.hosts[0].namespace.as_fd(), || {
        std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count").unwrap()
    });
    let known: u64 = known.trim().parse().unwrap();
    assert!(known > BURST / 2, "{known}");
    assert!(known <= BURST + PER_SECOND * (begun.elapsed().as_secs() + 1), "{known}");
}
