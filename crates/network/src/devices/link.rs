//! Messages that create and query network devices.
//!
//! Invariant: a device is created in the namespace where it stays. Moving devices between
//! namespaces is what makes conventional overlays slow (Particle 2.3, Table 3).

use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::netlink::*;

/// The size of `struct ifinfomsg` in bytes.
const FIXED: usize = 16;
/// The number of bytes that a packet gains in the underlay: Ethernet, VXLAN, UDP, and IPv4 or IPv6.
const OVERHEAD4: u32 = 50;
const OVERHEAD6: u32 = 70;
/// The largest MTU that the device accepts.
const MAX_MTU: u32 = 65_535;

/// The indexes of the devices in a job's namespace, which are the same in all.
pub const LOOPBACK: u32 = 1;
/// The job's end of its egress veth pair.
pub const EGRESS: u32 = 2;
/// The overlay.
pub const OVERLAY: u32 = 3;

/// `struct ifinfomsg` with a device's index, its new flags and the mask of those that change.
pub fn fixed(index: u32, flags: u32, change: u32) -> [u8; FIXED] {
    let mut bytes = [0; FIXED];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..16].copy_from_slice(&change.to_ne_bytes());
    bytes
}

/// Creates a veth pair: `name` here, and the other end in the namespace as `egress0`. Both are
/// down: the kernel sets neither up before both exist.
pub fn add_pair(batch: &mut Batch, name: &str, namespace: BorrowedFd<'_>) {
    batch.add("make the pair of devices", RTM_NEWLINK, NEW, &fixed(0, 0, 0), |a| {
        a.text(IFLA_IFNAME, name).nest(IFLA_LINKINFO, |a| {
            a.text(IFLA_INFO_KIND, "veth").nest(IFLA_INFO_DATA, |a| {
                let peer = fixed(EGRESS, 0, 0);
                a.nest_after(VETH_INFO_PEER, &peer, |a| {
                    a.text(IFLA_IFNAME, "egress0");
                    a.u32(IFLA_NET_NS_FD, namespace.as_raw_fd() as u32);
                });
            });
        });
    });
}

/// An overlay's end on one host.
#[derive(Clone, Copy, Debug)]
pub struct Overlay {
    /// The VNI, which no other job in the cluster has.
    pub vni: u32,
    /// The address of this host in the underlay.
    pub local: IpAddr,
    /// The UDP port of the underlay.
    pub port: u16,
    /// The device's MAC address.
    pub mac: [u8; 6],
    /// The MTU of the device in bytes.
    pub mtu: u32,
}

/// Creates the overlay's device, up, in a namespace; its packets leave from the namespace of the
/// socket that sends this message. It does no learning, flooding or address resolution: all its
/// entries come from [`super::route`].
pub fn add_overlay(batch: &mut Batch, overlay: &Overlay, namespace: BorrowedFd<'_>) {
    let up = fixed(OVERLAY, IFF_UP | IFF_NOARP, IFF_UP | IFF_NOARP);
    batch.add("make the overlay's device", RTM_NEWLINK, NEW, &up, |a| {
        a.text(IFLA_IFNAME, "overlay0");
        a.bytes(IFLA_ADDRESS, &overlay.mac).u32(IFLA_MTU, overlay.mtu);
        a.u32(IFLA_NET_NS_FD, namespace.as_raw_fd() as u32);
        a.nest(IFLA_LINKINFO, |a| {
            a.text(IFLA_INFO_KIND, "vxlan");
            a.nest(IFLA_INFO_DATA, |a| overlay_data(a, overlay));
        });
    });
}

/// Writes the attributes of the overlay. Checksums of the outer packet are off: packets inside have
/// their own.
fn overlay_data(a: &mut Attributes<'_>, overlay: &Overlay) {
    a.u32(IFLA_VXLAN_ID, overlay.vni).u8(IFLA_VXLAN_LEARNING, 0);
    a.bytes(IFLA_VXLAN_PORT, &overlay.port.to_be_bytes());
    match overlay.local {
        IpAddr::V4(local) => {
            a.bytes(IFLA_VXLAN_LOCAL, &local.octets()).u8(IFLA_VXLAN_UDP_CSUM, 0);
        }
        IpAddr::V6(local) => {
            a.bytes(IFLA_VXLAN_LOCAL6, &local.octets());
            a.u8(IFLA_VXLAN_UDP_ZERO_CSUM6_TX, 1).u8(IFLA_VXLAN_UDP_ZERO_CSUM6_RX, 1);
        }
    }
}

/// Makes the kernel assign no IPv6 addresses to a device.
pub fn without_ipv6_addresses(batch: &mut Batch, index: u32) {
    let step = "disable IPv6 on the host's end of the pair";
    batch.add(step, RTM_NEWLINK, 0, &fixed(index, 0, 0), |a| {
        a.nest(IFLA_AF_SPEC, |a| {
            a.nest(u16::from(AF_INET6), |a| {
                a.u8(IFLA_INET6_ADDR_GEN_MODE, IN6_ADDR_GEN_MODE_NONE);
            });
        });
    });
}

/// Removes the address that the kernel gives the loopback device when it is set up. Functions
/// have `localhost` at their own addresses, and an IPv6 socket that sends to an IPv4 address would
/// use a source from this net.
pub fn without_localhost(batch: &mut Batch) {
    let mut fixed = vec![AF_INET, 8, 0, RT_SCOPE_HOST];
    fixed.extend(LOOPBACK.to_ne_bytes());
    batch.add("remove the loopback device's address", RTM_DELADDR, 0, &fixed, |a| {
        a.bytes(IFA_LOCAL, &[127, 0, 0, 1]);
    });
}

/// Sets a device up.
pub fn set_up(batch: &mut Batch, step: &'static str, index: u32) {
    batch.add(step, RTM_NEWLINK, 0, &fixed(index, IFF_UP, IFF_UP), |_| {});
}

/// Sets a device down.
pub fn set_down(batch: &mut Batch, step: &'static str, index: u32) {
    batch.add(step, RTM_NEWLINK, 0, &fixed(index, 0, IFF_UP), |_| {});
}

/// Removes a device.
pub fn remove(batch: &mut Batch, step: &'static str, index: u32) {
    batch.add(step, RTM_DELLINK, 0, &fixed(index, 0, 0), |_| {});
}

/// The MTU inside the overlay, for an MTU of the underlay.
pub fn inner_mtu(underlay: u32, local: IpAddr) -> u32 {
    let overhead = if local.is_ipv4() { OVERHEAD4 } else { OVERHEAD6 };
    underlay.min(MAX_MTU).saturating_sub(overhead)
}

/// A device as the kernel reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The index of the device in its namespace.
    pub index: u32,
    /// The MTU of the device in bytes.
    pub mtu: u32,
    /// Whether the device is up, with carrier, and in an operational state.
    pub operational: bool,
}

impl Link {
    fn read(message: &Parsed) -> Option<Self> {
        let body = &message.body;
        let number = |at: usize| Some(u32::from_ne_bytes(body.get(at..at + 4)?.try_into().ok()?));
        let mtu = message.attribute(FIXED, IFLA_MTU)?;
        let state = message.attribute(FIXED, IFLA_OPERSTATE)?.first().copied()?;
        let flags = number(8)?;
        let carried = flags & (IFF_UP | IFF_LOWER_UP) == IFF_UP | IFF_LOWER_UP;
        Some(Self {
            index: number(4)?,
            mtu: u32::from_ne_bytes(mtu.try_into().ok()?),
            operational: carried && matches!(state, IF_OPER_UNKNOWN | IF_OPER_UP),
        })
    }
}

/// A device by its index.
pub fn by_index(socket: &mut Socket, index: u32) -> Result<Option<Link>, BatchFailure> {
    let mut batch = Batch::new();
    batch.add("query a device", RTM_GETLINK, 0, &fixed(index, 0, 0), |_| {});
    one(socket, batch)
}

/// A device by its name.
pub fn by_name(socket: &mut Socket, name: &str) -> Result<Option<Link>, BatchFailure> {
    let mut batch = Batch::new();
    batch.add("query a device", RTM_GETLINK, 0, &fixed(0, 0, 0), |a| {
        a.text(IFLA_IFNAME, name);
    });
    one(socket, batch)
}

fn one(socket: &mut Socket, batch: Batch) -> Result<Option<Link>, BatchFailure> {
    match socket.ask(batch) {
        Ok(answers) => Ok(answers.iter().find_map(Link::read)),
        Err(failed) if is_missing(&failed) => Ok(None),
        Err(failed) => Err(failed),
    }
}

fn is_missing(failed: &BatchFailure) -> bool {
    failed.source.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

/// The device that has an address.
pub fn of_address(socket: &mut Socket, address: IpAddr) -> Result<Option<Link>, BatchFailure> {
    let mut batch = Batch::new();
    batch.add("list the host's addresses", RTM_GETADDR, NLM_F_DUMP, &[AF_UNSPEC; 8], |_| {});
    let octets = octets(address);
    let index = socket.ask(batch)?.iter().find_map(|message| {
        let is = |kind| message.attribute(8, kind) == Some(&*octets);
        let index = u32::from_ne_bytes(message.body.get(4..8)?.try_into().ok()?);
        (is(IFA_LOCAL) || is(IFA_ADDRESS)).then_some(index)
    });
    match index {
        Some(index) => by_index(socket, index),
        None => Ok(None),
    }
}

/// The octets of an address, as the kernel expects them.
pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inner_mtu_leaves_room_for_the_overhead() {
        let v4 = "10.0.0.1".parse().unwrap();
        let v6 = "fd00::1".parse().unwrap();
        assert_eq!(inner_mtu(1500, v4), 1450);
        assert_eq!(inner_mtu(1500, v6), 1430);
        assert_eq!(inner_mtu(65_536, v4), 65_485);
    }
}
