//! The route of a packet to an address of the job. Each step is queried from the kernel, so that
//! the result is its actual state and not the intended one.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::devices::link::{EGRESS, LOOPBACK, octets};
use crate::netlink::*;

/// The route that the kernel would use for a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "route", rename_all = "kebab-case")]
pub enum TracedRoute {
    /// The packet goes to a function on this host.
    #[serde(rename = "here")]
    Local,
    /// The packet goes over the overlay to another host.
    Host {
        /// The gateway of the route.
        gateway: IpAddr,
        /// The MAC address of the other host's device.
        mac: String,
        /// The underlay address of the other host.
        host: IpAddr,
        /// The round trip of an echo request; `None` if there was no answer.
        round_trip: Option<Duration>,
    },
    /// The packet goes out of the job, if its policy lets it pass.
    Outside {
        /// The host's end of the pair.
        gateway: IpAddr,
    },
    /// No route exists: the sender gets an error.
    #[serde(rename = "nowhere")]
    Unreachable {
        /// The missing entry.
        missing: Cow<'static, str>,
    },
}

/// Looks up the route, the neighbour and the forwarding entry, in this order.
pub fn of(socket: &mut Socket, to: IpAddr) -> Result<TracedRoute, BatchFailure> {
    let Some((device, gateway)) = route_to(socket, to)? else {
        return Ok(unreachable("a route"));
    };
    match (device, gateway) {
        (LOOPBACK, _) => Ok(TracedRoute::Local),
        (EGRESS, Some(gateway)) => Ok(TracedRoute::Outside { gateway }),
        (_, Some(gateway)) => over(socket, gateway),
        (_, None) => Ok(unreachable("a neighbour in the route")),
    }
}

fn over(socket: &mut Socket, gateway: IpAddr) -> Result<TracedRoute, BatchFailure> {
    let Some(mac) = entry(socket, AF_INET6, NDA_DST, &octets(gateway), NDA_LLADDR)? else {
        return Ok(unreachable("the neighbour's address"));
    };
    let host = entry(socket, AF_BRIDGE, NDA_LLADDR, &mac, NDA_DST)?;
    let Some(host) = host.as_deref().and_then(address) else {
        return Ok(unreachable("the forwarding entry"));
    };
    let mac = mac.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":");
    Ok(TracedRoute::Host { gateway, mac, host, round_trip: None })
}

fn unreachable(missing: &'static str) -> TracedRoute {
    TracedRoute::Unreachable { missing: missing.into() }
}

/// The device and the gateway of the route to an address.
fn route_to(
    socket: &mut Socket,
    to: IpAddr,
) -> Result<Option<(u32, Option<IpAddr>)>, BatchFailure> {
    let (family, bits) = if to.is_ipv4() { (AF_INET, 32) } else { (AF_INET6, 128) };
    let mut fixed = [0; 12];
    fixed[..2].copy_from_slice(&[family, bits]);
    let mut batch = Batch::new();
    batch.add("look up a route", RTM_GETROUTE, 0, &fixed, |a| {
        a.bytes(RTA_DST, &octets(to));
    });
    let answers = match socket.ask(batch) {
        Err(failed) if crate::devices::route::is_unreachable(&failed) => return Ok(None),
        answers => answers?,
    };
    Ok(answers.iter().find_map(|message| {
        let device = message.attribute(12, RTA_OIF)?;
        let same = message.attribute(12, RTA_GATEWAY);
        // After two bytes for its family.
        let other = message.attribute(12, RTA_VIA).and_then(|via| via.get(2..));
        let gateway = same.or(other).and_then(address);
        Some((u32::from_ne_bytes(device.try_into().ok()?), gateway))
    }))
}

/// The attribute `wanted` of the neighbour or forwarding entry whose attribute `known` is `value`.
fn entry(
    socket: &mut Socket,
    family: u8,
    known: u16,
    value: &[u8],
    wanted: u16,
) -> Result<Option<Vec<u8>>, BatchFailure> {
    let mut fixed = [0; 12];
    fixed[0] = family;
    let mut batch = Batch::new();
    batch.add("list neighbours", RTM_GETNEIGH, NLM_F_DUMP, &fixed, |_| {});
    let found = socket.ask(batch)?;
    let entry = found.iter().find(|message| message.attribute(12, known) == Some(value));
    Ok(entry.and_then(|message| message.attribute(12, wanted)).map(<[u8]>::to_vec))
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(|bytes| Ipv4Addr::from(bytes).into());
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(|bytes| Ipv6Addr::from(bytes).into())).ok()
}
