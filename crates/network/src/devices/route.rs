//! Messages for routes, neighbours and forwarding entries.
//!
//! A host takes a route for each family, one neighbour and one forwarding entry, whatever the
//! number of its functions. Both routes lead to the same neighbour, a link-local IPv6 address that
//! no packet ever carries and that is never resolved.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::link::{LOOPBACK, OVERLAY, octets};
use crate::netlink::*;
use crate::{JobPeer, Range};

/// A route for [`add`] and [`remove`].
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The destinations.
    pub range: Range,
    /// The index of the device.
    pub device: u32,
    /// The next hop.
    pub next_hop: NextHop,
}

/// The destination of a route's packets.
#[derive(Clone, Copy, Debug)]
pub enum NextHop {
    /// The addresses of the range are this namespace's own (AnyIP).
    Local,
    /// A neighbour; packets without a source address get `source`.
    Via {
        /// The neighbour.
        gateway: IpAddr,
        /// An IPv4 address of this namespace.
        source: Option<Ipv4Addr>,
    },
}

/// Adds a route that must not exist yet.
pub fn add(batch: &mut Batch, step: &'static str, route: &Route) {
    put(batch, step, RTM_NEWROUTE, NEW, route);
}

/// Removes a route.
pub fn remove(batch: &mut Batch, step: &'static str, route: &Route) {
    put(batch, step, RTM_DELROUTE, 0, route);
}

fn put(batch: &mut Batch, step: &'static str, kind: u16, flags: u16, route: &Route) {
    let family = if route.range.is_ipv4() { AF_INET } else { AF_INET6 };
    let (table, scope, what, of_hop) = match route.next_hop {
        NextHop::Local => (RT_TABLE_LOCAL, RT_SCOPE_HOST, RTN_LOCAL, 0),
        NextHop::Via { .. } => (RT_TABLE_MAIN, RT_SCOPE_UNIVERSE, RTN_UNICAST, RTNH_F_ONLINK),
    };
    let prefix = route.range.prefix();
    let mut fixed = vec![family, prefix, 0, 0, table, RTPROT_STATIC, scope, what];
    fixed.extend(of_hop.to_ne_bytes());
    batch.add(step, kind, flags, &fixed, |a| {
        a.bytes(RTA_DST, &octets(route.range.base())).u32(RTA_OIF, route.device);
        if let NextHop::Via { gateway, source } = route.next_hop {
            via(a, gateway, route.range.is_ipv4());
            if let Some(source) = source {
                a.bytes(RTA_PREFSRC, &source.octets());
            }
        }
    });
}

/// The device through which the kernel would send to an address; none if there is no route.
pub fn device_to(socket: &mut Socket, target: IpAddr) -> Result<Option<u32>, BatchFailure> {
    let (family, bits) = if target.is_ipv4() { (AF_INET, 32) } else { (AF_INET6, 128) };
    let mut fixed = [0; 12];
    fixed[0] = family;
    fixed[1] = bits;
    let mut batch = Batch::new();
    batch.add("look up a route", RTM_GETROUTE, 0, &fixed, |a| {
        a.bytes(RTA_DST, &octets(target));
    });
    match socket.ask(batch) {
        Ok(answers) => Ok(answers.iter().find_map(|message| {
            let index = message.attribute(12, RTA_OIF)?;
            Some(u32::from_ne_bytes(index.try_into().ok()?))
        })),
        Err(failed) if is_unreachable(&failed) => Ok(None),
        Err(failed) => Err(failed),
    }
}

/// Whether the kernel reported that there is no route.
pub fn is_unreachable(failed: &BatchFailure) -> bool {
    let unreachable = [rustix::io::Errno::NETUNREACH, rustix::io::Errno::HOSTUNREACH];
    failed
        .source
        .raw_os_error()
        .is_some_and(|code| unreachable.iter().any(|known| known.raw_os_error() == code))
}

/// Adds the gateway of a route. A gateway of the other family is encoded with its family.
fn via(a: &mut Attributes<'_>, gateway: IpAddr, is_ipv4: bool) {
    if gateway.is_ipv4() == is_ipv4 {
        a.bytes(RTA_GATEWAY, &octets(gateway));
        return;
    }
    let family = if gateway.is_ipv4() { AF_INET } else { AF_INET6 };
    let mut value = u16::from(family).to_ne_bytes().to_vec();
    value.extend(octets(gateway));
    a.bytes(RTA_VIA, &value);
}

/// Makes a host's part of the range local, in one operation for any number of addresses.
pub fn add_own(batch: &mut Batch, range: Range) {
    let route = Route { range, device: LOOPBACK, next_hop: NextHop::Local };
    add(batch, "make the host's addresses local", &route);
}

/// Adds the entries for another host's part of the range.
pub fn add_peer(batch: &mut Batch, peer: &JobPeer, source: Ipv4Addr) {
    for route in routes_to(peer, source) {
        add(batch, "add the route to a host", &route);
    }
    let mac = mac_of(peer.range4);
    put_neighbour(batch, "add a host as neighbour", RTM_NEWNEIGH, NEW, peer, mac);
    put_forwarding(batch, "add the forwarding entry of a host", RTM_NEWNEIGH, NEW, peer, mac);
}

/// Removes the entries for another host's part of the range.
pub fn remove_peer(batch: &mut Batch, peer: &JobPeer, source: Ipv4Addr) {
    for route in routes_to(peer, source) {
        remove(batch, "remove the route to a host", &route);
    }
    let mac = mac_of(peer.range4);
    put_neighbour(batch, "remove a host as neighbour", RTM_DELNEIGH, 0, peer, mac);
    put_forwarding(batch, "remove the forwarding entry of a host", RTM_DELNEIGH, 0, peer, mac);
}

fn routes_to(peer: &JobPeer, source: Ipv4Addr) -> [Route; 2] {
    let gateway = IpAddr::V6(gateway_of(mac_of(peer.range4)));
    let of = |range, source| Route {
        range,
        device: OVERLAY,
        next_hop: NextHop::Via { gateway, source },
    };
    [of(peer.range4, Some(source)), of(peer.range6, None)]
}

fn put_neighbour(
    batch: &mut Batch,
    step: &'static str,
    kind: u16,
    flags: u16,
    peer: &JobPeer,
    mac: [u8; 6],
) {
    let gateway = gateway_of(mac_of(peer.range4));
    batch.add(step, kind, flags, &neighbour(AF_INET6, 0), |a| {
        a.bytes(NDA_DST, &gateway.octets()).bytes(NDA_LLADDR, &mac);
    });
}

fn put_forwarding(
    batch: &mut Batch,
    step: &'static str,
    kind: u16,
    flags: u16,
    peer: &JobPeer,
    mac: [u8; 6],
) {
    batch.add(step, kind, flags, &neighbour(AF_BRIDGE, NTF_SELF), |a| {
        a.bytes(NDA_LLADDR, &mac).bytes(NDA_DST, &octets(peer.host));
    });
}

/// `struct ndmsg` of a permanent entry on the overlay.
fn neighbour(family: u8, flags: u8) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[0] = family;
    bytes[4..8].copy_from_slice(&OVERLAY.to_ne_bytes());
    bytes[8..10].copy_from_slice(&NUD_PERMANENT.to_ne_bytes());
    bytes[10] = flags;
    bytes
}

/// The MAC address of a host's device, derived from the first IPv4 address of its part: unique
/// within a job, and computable by every other host.
pub fn mac_of(range4: Range) -> [u8; 6] {
    let base = octets(range4.base());
    let at = |offset: usize| base.get(offset).copied().unwrap_or_default();
    // Bit 1 of the first byte: locally administered, not assigned by a manufacturer.
    [0x02, 0x73, at(0), at(1), at(2), at(3)]
}

/// The link-local address that stands for a host in routes.
fn gateway_of(mac: [u8; 6]) -> Ipv6Addr {
    let pair = |high: u8, low: u8| u16::from_be_bytes([high, low]);
    Ipv6Addr::new(
        0xfe80,
        0,
        0,
        0,
        0,
        pair(mac[0], mac[1]),
        pair(mac[2], mac[3]),
        pair(mac[4], mac[5]),
    )
}
