//! Emulated hosts, and operations in their namespaces.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use snowmelt_kernel::namespace::{flags, join, unshare};
use snowmelt_network::netlink::*;
use snowmelt_network::{Egress, JobNetwork, JobPeer, JobSpec, Networks, Options, Range};
use snowmelt_types::Tenant;

/// Long enough for a loaded machine, short enough for a failing test.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Whether the test can run; prints that it is skipped if not.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: only root can make network namespaces");
    }
    root
}

/// Runs `work` in a network namespace, in a thread of its own.
pub fn within<T: Send>(namespace: BorrowedFd<'_>, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let visitor = scope.spawn(|| {
            join(namespace, flags::NETWORK).unwrap();
            work()
        });
        visitor.join().unwrap()
    })
}

/// A fresh network namespace.
pub fn fresh_namespace() -> OwnedFd {
    let visitor = std::thread::spawn(|| {
        unshare(flags::NETWORK).unwrap();
        OwnedFd::from(std::fs::File::open("/proc/thread-self/ns/net").unwrap())
    });
    visitor.join().unwrap()
}

/// A bridge that connects the hosts.
pub struct Underlay {
    hub: OwnedFd,
    hosts: u8,
}

/// A host: its namespace, its address and its networks.
pub struct Host {
    pub namespace: OwnedFd,
    pub address: IpAddr,
    pub networks: Networks,
    pub state: tempfile::TempDir,
}

impl Underlay {
    pub fn new() -> Self {
        let hub = fresh_namespace();
        within(hub.as_fd(), || {
            let mut batch = Batch::new();
            batch.add("make the bridge", RTM_NEWLINK, NEW, &link(BRIDGE, 1), |a| {
                a.text(IFLA_IFNAME, "hub").nest(IFLA_LINKINFO, |a| {
                    a.text(IFLA_INFO_KIND, "bridge");
                });
            });
            Socket::open(None).unwrap().run(batch).unwrap();
        });
        Self { hub, hosts: 0 }
    }

    /// Adds a host.
    pub fn host(&mut self) -> Host {
        self.hosts += 1;
        let namespace = fresh_namespace();
        let number = self.hosts;
        let name = format!("h{}", self.hosts);
        let hub = self.hub.as_fd();
        within(namespace.as_fd(), || {
            let mut batch = Batch::new();
            batch.add("make the cable", RTM_NEWLINK, NEW, &link(CABLE, 0), |a| {
                a.text(IFLA_IFNAME, "eth0").nest(IFLA_LINKINFO, |a| {
                    a.text(IFLA_INFO_KIND, "veth").nest(IFLA_INFO_DATA, |a| {
                        a.nest_after(VETH_INFO_PEER, &link(0, 0), |a| {
                            a.text(IFLA_IFNAME, &name);
                            a.u32(IFLA_NET_NS_FD, hub.as_raw_fd() as u32);
                        });
                    });
                });
            });
            batch.add("set up lo", RTM_NEWLINK, 0, &link(1, 1), |_| {});
            batch.add("set up eth0", RTM_NEWLINK, 0, &link(CABLE, 1), |_| {});
            let mut socket = Socket::open(None).unwrap();
            socket.run(batch).unwrap();
            let mut fixed = vec![AF_INET, 24, 0, 0];
            fixed.extend(CABLE.to_ne_bytes());
            let mut batch = Batch::new();
            batch.add("give the address", RTM_NEWADDR, NEW, &fixed, |a| {
                a.bytes(IFA_LOCAL, &[192, 0, 2, number]).bytes(IFA_ADDRESS, &[192, 0, 2, number]);
            });
            socket.run(batch).unwrap();
        });
        within(hub, || {
            let mut batch = Batch::new();
            batch.add("connect it to the bridge", RTM_NEWLINK, 0, &link(0, 1), |a| {
                a.text(IFLA_IFNAME, &name).u32(IFLA_MASTER, BRIDGE);
            });
            Socket::open(None).unwrap().run(batch).unwrap();
        });
        let state = tempfile::tempdir().unwrap();
        let networks = open(namespace.as_fd(), state.path());
        Host { namespace, address: IpAddr::from([192, 0, 2, number]), networks, state }
    }
}

/// Opens the networks of a host with this state.
pub fn open(namespace: BorrowedFd<'_>, state: &Path) -> Networks {
    let options = Options::new(state);
    within(namespace, || Networks::open(options)).unwrap()
}

/// Creates a network in this namespace.
pub fn create_in(
    host: &Host,
    spec: JobSpec,
    namespace: OwnedFd,
) -> snowmelt_network::Result<JobNetwork> {
    let configured = host.networks.configure(namespace)?;
    host.networks.create_configured(spec, configured)
}

const IFLA_MASTER: u16 = 10;

/// The indexes of a host's device and of the bridge.
const CABLE: u32 = 2;
const BRIDGE: u32 = 2;

/// `struct ifinfomsg`: up if `up` is 1.
fn link(index: u32, up: u8) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8] = up;
    bytes[12] = up;
    bytes
}

pub fn range(text: &str) -> Range {
    text.parse().unwrap()
}

/// The parts of hosts of a job, 10.77.0.0/16 and fd77::/64 split into /18 and /114.
pub fn parts(hosts: &[&Host]) -> Vec<JobPeer> {
    let parts = hosts.iter().zip(0..).map(|(host, number)| JobPeer {
        host: host.address,
        range4: range("10.77.0.0/16").part(18, number).unwrap(),
        range6: range("fd77::/64").part(114, number).unwrap(),
    });
    parts.collect()
}

/// The spec of a job on one of its hosts.
pub fn spec(tenant: &str, vni: u32, own: &JobPeer, all: &[JobPeer]) -> JobSpec {
    JobSpec {
        job: format!("job-{vni}"),
        tenant: tenant.parse::<Tenant>().unwrap(),
        vni,
        range4: range("10.77.0.0/16"),
        range6: range("fd77::/64"),
        own4: own.range4,
        own6: own.range6,
        host: own.host,
        peers: all.iter().filter(|peer| peer.host != own.host).copied().collect(),
        egress: Egress::default(),
    }
}

/// A job over hosts.
pub fn job(tenant: &str, vni: u32, hosts: &[&Host]) -> Vec<JobNetwork> {
    let all = parts(hosts);
    let each = hosts.iter().zip(&all);
    each.map(|(host, own)| host.networks.create(spec(tenant, vni, own, &all)).unwrap()).collect()
}

/// Sends a line over TCP between two functions, at the given addresses; returns what arrived.
pub fn tcp(from: (&JobNetwork, IpAddr), to: (&JobNetwork, IpAddr)) -> std::io::Result<String> {
    let listener = within(to.0.namespace(), || TcpListener::bind((to.1, 7000)))?;
    let mut client = within(from.0.namespace(), || connect_from(from.1, (to.1, 7000).into()))?;
    let (mut server, sender) = listener.accept()?;
    assert_eq!(sender.ip(), from.1);
    std::io::Write::write_all(&mut client, b"hello")?;
    drop(client);
    let mut text = String::new();
    std::io::Read::read_to_string(&mut server, &mut text)?;
    Ok(text)
}

/// A connection from an address, in the calling thread's namespace. Gives up after a few seconds.
pub fn connect_from(from: IpAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let family = if from.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::sockopt::set_socket_timeout(
        &socket,
        rustix::net::sockopt::Timeout::Send,
        Some(Duration::from_secs(3)),
    )?;
    bind(&socket, &SocketAddr::new(from, 0))?;
    connect(&socket, &to)?;
    Ok(socket.into())
}

/// Whether a datagram arrives at a socket within a moment.
pub fn arrives(socket: &UdpSocket) -> bool {
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    socket.recv_from(&mut [0; 64]).is_ok()
}

/// Devices of job networks in a host's namespace.
pub fn devices(host: &Host) -> Vec<String> {
    devices_in(host.namespace.as_fd())
}

pub fn devices_in(namespace: BorrowedFd<'_>) -> Vec<String> {
    let text = within(namespace, || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap());
    let names = text.lines().filter_map(|line| line.split_once(':'));
    names.map(|(name, _)| name.trim().to_owned()).filter(|name| name.starts_with("snm")).collect()
}

/// Waits for something that the kernel does asynchronously.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(std::time::Instant::now() < deadline, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
