//! A namespace that stands for the host, and in another one what a conventional overlay has before
//! the first endpoint: its bridge and its overlay device (the VTEP of the paper's Figure 2).

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use snowmelt_kernel::namespace::{flags, join, unshare};
use snowmelt_network::netlink::*;

const IFLA_MASTER: u16 = 10;
/// The other end of an overlay that has but one.
const IFLA_VXLAN_GROUP: u16 = 2;
/// The bridge and the overlay by their numbers beside `lo`.
pub const BRIDGE: u32 = 2;
const OVERLAY: u32 = 3;
/// An end in an endpoint's namespace.
pub const GUEST: u32 = 2;

/// A namespace with a socket in it.
pub struct Namespace {
    pub fd: OwnedFd,
    pub route: Socket,
}

impl Namespace {
    /// Makes one. The thread ends with it, so it crosses once.
    pub fn make() -> Result<Self> {
        let visitor = std::thread::spawn(|| -> Result<Self> {
            unshare(flags::NETWORK)?;
            Ok(Self {
                fd: File::open("/proc/thread-self/ns/net")?.into(),
                route: Socket::open(None)?,
            })
        });
        visitor.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?
    }
}

/// The host, and what is there before the first endpoint.
pub struct Bed {
    pub host: Socket,
    pub vtep: Namespace,
}

impl Bed {
    /// Moves this thread, and those that it starts from now on, into the host's namespace.
    pub fn enter() -> Result<Self> {
        unshare(flags::NETWORK)?;
        Self::furnish(Ipv4Addr::LOCALHOST, None)
    }

    /// Puts what is there before the first endpoint into the calling thread's namespace, whose
    /// address is `local`, with an overlay to another host if there is one.
    pub fn furnish(local: Ipv4Addr, remote: Option<Ipv4Addr>) -> Result<Self> {
        let most = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })?;
        let mut host = Socket::open(None)?;
        let mut batch = Batch::new();
        set_up(&mut batch, 1);
        host.run(batch)?;
        let mut vtep = Namespace::make()?;
        let mut batch = Batch::new();
        batch.add("make the bridge", RTM_NEWLINK, NEW, &link(BRIDGE, 1), |a| {
            a.text(IFLA_IFNAME, "br0");
            a.nest(IFLA_LINKINFO, |a| {
                a.text(IFLA_INFO_KIND, "bridge");
            });
        });
        vtep.route.run(batch)?;
        let mut batch = Batch::new();
        add_overlay(&mut batch, vtep.fd.as_fd(), OVERLAY, 7, local, remote);
        host.run(batch)?;
        let mut batch = Batch::new();
        batch.add("plug the overlay in", RTM_NEWLINK, 0, &link(OVERLAY, 1), |a| {
            a.u32(IFLA_MASTER, BRIDGE);
        });
        vtep.route.run(batch)?;
        Ok(Self { host, vtep })
    }

    /// Messages of the two sockets so far.
    pub fn messages(&self) -> u64 {
        self.host.messages() + self.vtep.route.messages()
    }

    /// Waits until no endpoint is plugged in any more.
    pub fn settle(&mut self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let mut batch = Batch::new();
            batch.add("list links", RTM_GETLINK, NLM_F_DUMP, &link(0, 0), |_| {});
            if self.vtep.route.ask(batch)?.len() <= 3 {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("endpoints are still plugged in after two minutes");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// `struct ifinfomsg`: up if `up` is 1.
pub fn link(index: u32, up: u8) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8] = up;
    bytes[12] = up;
    bytes
}

/// An overlay device in a namespace, over the sender's.
pub fn add_overlay(
    batch: &mut Batch,
    namespace: BorrowedFd<'_>,
    index: u32,
    vni: u32,
    local: Ipv4Addr,
    remote: Option<Ipv4Addr>,
) {
    batch.add("make the overlay", RTM_NEWLINK, NEW, &link(index, 0), |a| {
        a.text(IFLA_IFNAME, "vxlan0").u32(IFLA_NET_NS_FD, namespace.as_raw_fd() as u32);
        a.nest(IFLA_LINKINFO, |a| {
            a.text(IFLA_INFO_KIND, "vxlan").nest(IFLA_INFO_DATA, |a| {
                a.u32(IFLA_VXLAN_ID, vni).bytes(IFLA_VXLAN_PORT, &4789u16.to_be_bytes());
                a.bytes(IFLA_VXLAN_LOCAL, &local.octets());
                if let Some(remote) = remote {
                    a.bytes(IFLA_VXLAN_GROUP, &remote.octets());
                }
            });
        });
    });
}

/// A pair: one end here, by name and number if it has one, the other by name in `namespace`.
pub fn add_pair(
    batch: &mut Batch,
    name: &str,
    index: u32,
    other: &str,
    namespace: Option<BorrowedFd<'_>>,
) {
    batch.add("make a pair", RTM_NEWLINK, NEW, &link(index, 0), |a| {
        a.text(IFLA_IFNAME, name).nest(IFLA_LINKINFO, |a| {
            a.text(IFLA_INFO_KIND, "veth").nest(IFLA_INFO_DATA, |a| {
                a.nest_after(VETH_INFO_PEER, &link(0, 0), |a| {
                    a.text(IFLA_IFNAME, other);
                    if let Some(namespace) = namespace {
                        a.u32(IFLA_NET_NS_FD, namespace.as_raw_fd() as u32);
                    }
                });
            });
        });
    });
}

/// Moves a device.
pub fn move_to(batch: &mut Batch, name: &str, namespace: BorrowedFd<'_>) {
    batch.add("move a device", RTM_NEWLINK, 0, &link(0, 0), |a| {
        a.text(IFLA_IFNAME, name).u32(IFLA_NET_NS_FD, namespace.as_raw_fd() as u32);
    });
}

/// Plugs a device into the bridge and sets it up.
pub fn plug_in(batch: &mut Batch, name: &str) {
    batch.add("plug in", RTM_NEWLINK, 0, &link(0, 0), |a| {
        a.text(IFLA_IFNAME, name).u32(IFLA_MASTER, BRIDGE);
    });
    set_up_name(batch, name);
}

/// Sets a device up by its number.
pub fn set_up(batch: &mut Batch, index: u32) {
    batch.add("set up", RTM_NEWLINK, 0, &link(index, 1), |_| {});
}

/// Sets a device up by its name.
pub fn set_up_name(batch: &mut Batch, name: &str) {
    batch.add("set up", RTM_NEWLINK, 0, &link(0, 1), |a| {
        a.text(IFLA_IFNAME, name);
    });
}

/// Gives a device an address.
pub fn add_address(batch: &mut Batch, index: u32, address: Ipv4Addr) {
    let mut fixed = vec![AF_INET, 8, 0, 0];
    fixed.extend(index.to_ne_bytes());
    batch.add("add an address", RTM_NEWADDR, NEW, &fixed, |a| {
        a.bytes(IFA_LOCAL, &address.octets()).bytes(IFA_ADDRESS, &address.octets());
    });
}

/// The address of an endpoint.
pub fn address_of(endpoint: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 1).to_bits() + endpoint)
}

/// Does something in a namespace.
pub fn within<T: Send>(
    namespace: BorrowedFd<'_>,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    std::thread::scope(|scope| {
        let visitor = scope.spawn(|| {
            join(namespace, flags::NETWORK)?;
            work()
        });
        visitor.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?
    })
}

/// Opens a connection between two endpoints, each in its namespace.
pub fn check(from: (BorrowedFd<'_>, Ipv4Addr), to: (BorrowedFd<'_>, Ipv4Addr)) -> Result<()> {
    let listener = within(to.0, || Ok(TcpListener::bind((to.1, 7000))?))?;
    within(from.0, || {
        let kind = (AddressFamily::INET, SocketType::STREAM);
        let socket = socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, None)?;
        rustix::net::bind(&socket, &SocketAddr::from((from.1, 0)))?;
        connect(&socket, &SocketAddr::from((to.1, 7000))).context("cannot connect")?;
        let (_, sender) = listener.accept()?;
        ensure!(sender.ip() == from.1, "it comes from {sender}, not from {}", from.1);
        Ok(())
    })
}
