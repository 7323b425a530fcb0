//! Messages that create the bridge and the links to hosts, and configure the hosts' devices.
//!
//! Invariant: the devices of a host and of the bridge have the same indexes and names in all labs,
//! because each is in a namespace of its own.

use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd};

use snowmelt_network::netlink::*;

use crate::members::Machine;

/// The bridge's index in its namespace; the hosts' ports have the indexes above it.
const BRIDGE: u32 = 1000;
/// The index of a host's device. High, because some kernels create tunnel devices in each new
/// namespace.
pub const ETH0: u32 = 1000;
const LOOPBACK: u32 = 1;

/// The index of a host's port of the bridge.
pub const fn port(host: u32) -> u32 {
    BRIDGE + host
}

/// Creates the bridge, up. It learns the hosts' MAC addresses, and has no spanning tree.
pub fn add_bridge(batch: &mut Batch) {
    batch.add("make the bridge", RTM_NEWLINK, NEW, &link(BRIDGE, IFF_UP, IFF_UP), |a| {
        a.text(IFLA_IFNAME, "bridge0").nest(IFLA_LINKINFO, |a| {
            a.text(IFLA_INFO_KIND, "bridge").nest(IFLA_INFO_DATA, |a| {
                // Hosts use unicast only, so the bridge sends no multicast queries.
                a.u32(IFLA_BR_STP_STATE, 0).u8(IFLA_BR_MCAST_SNOOPING, 0);
            });
        });
    });
}

/// Creates the link to a host: its port of the bridge, up, and `eth0` in its namespace. Sent in the
/// bridge's namespace; no device is moved.
pub fn add_link(batch: &mut Batch, host: u32, name: &str, namespace: BorrowedFd<'_>) {
    let up = link(port(host), IFF_UP, IFF_UP);
    batch.add("make the link to a host", RTM_NEWLINK, NEW, &up, |a| {
        a.text(IFLA_IFNAME, name).u32(IFLA_MASTER, BRIDGE).nest(IFLA_LINKINFO, |a| {
            a.text(IFLA_INFO_KIND, "veth").nest(IFLA_INFO_DATA, |a| {
                a.nest_after(VETH_INFO_PEER, &link(ETH0, 0, 0), |a| {
                    a.text(IFLA_IFNAME, "eth0").bytes(IFLA_ADDRESS, &mac(host));
                    a.u32(IFLA_NET_NS_FD, namespace.as_raw_fd() as u32);
                });
            });
        });
    });
}

/// Gives a host its address and sets its devices up. Sent in its namespace.
pub fn configure(batch: &mut Batch, address: Ipv4Addr, prefix: u8) {
    set(batch, "set up the loopback device of a host", LOOPBACK, true);
    let mut fixed = vec![AF_INET, prefix, 0, RT_SCOPE_UNIVERSE];
    fixed.extend(ETH0.to_ne_bytes());
    batch.add("give a host its address", RTM_NEWADDR, NEW, &fixed, |a| {
        a.bytes(IFA_LOCAL, &address.octets()).bytes(IFA_ADDRESS, &address.octets());
    });
    set(batch, "set up the link of a host", ETH0, true);
}

/// Adds permanent neighbour entries for other hosts. Sent in a host's namespace. Entries that are
/// resolved by ARP share one table of the kernel for all of its namespaces, which has room for
/// 1024: too few for 33 hosts that know each other.
pub fn add_neighbours<'a>(batch: &mut Batch, others: impl IntoIterator<Item = &'a Machine>) {
    for other in others {
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        batch.add("add a host as neighbour of another", RTM_NEWNEIGH, flags, &neighbour(), |a| {
            a.bytes(NDA_DST, &other.ip().octets()).bytes(NDA_LLADDR, &mac(other.number));
        });
    }
}

/// Sets a device up or down.
pub fn set(batch: &mut Batch, step: &'static str, index: u32, up: bool) {
    let flags = if up { IFF_UP } else { 0 };
    batch.add(step, RTM_NEWLINK, 0, &link(index, flags, IFF_UP), |_| {});
}

/// Drops packets to an address (a blackhole route), or no longer. The route may exist already.
pub fn set_blackhole(batch: &mut Batch, address: Ipv4Addr, enabled: bool) {
    let (step, kind, flags) = match enabled {
        true => ("partition a host from another", RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE),
        false => ("reconnect a host to another", RTM_DELROUTE, 0),
    };
    let table = RT_TABLE_MAIN;
    let scope = RT_SCOPE_UNIVERSE;
    let mut fixed = vec![AF_INET, 32, 0, 0, table, RTPROT_STATIC, scope, RTN_BLACKHOLE];
    fixed.extend([0; 4]);
    batch.add(step, kind, flags, &fixed, |a| {
        a.bytes(RTA_DST, &address.octets());
    });
}

/// The MAC address of a host's device, locally administered (bit 1 of the first byte).
const fn mac(host: u32) -> [u8; 6] {
    let [a, b, c, d] = host.to_be_bytes();
    [0x02, 0x6c, a, b, c, d]
}

/// `struct ndmsg` of a permanent entry.
fn neighbour() -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[0] = AF_INET;
    bytes[4..8].copy_from_slice(&ETH0.to_ne_bytes());
    bytes[8..10].copy_from_slice(&NUD_PERMANENT.to_ne_bytes());
    bytes
}

/// `struct ifinfomsg`.
fn link(index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..16].copy_from_slice(&change.to_ne_bytes());
    bytes
}
