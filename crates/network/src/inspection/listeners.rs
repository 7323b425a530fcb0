//! The sockets that receive packets for an address and a port of a job, as the kernel lists them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::contents::{TCP, UDP, sockets};
use crate::netlink::*;

/// `TCP_LISTEN` and `TCP_CLOSE` of `net/tcp_states.h`; a datagram socket without a peer has the
/// latter state.
const LISTEN: u8 = 10;
const CLOSE: u8 = 7;

/// A socket that waits for connections or datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// The transport protocol of the socket.
    pub transport: Transport,
    /// The local address of the socket; the unspecified one if it is not bound.
    pub address: IpAddr,
}

/// The transports that functions may use; there are no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// Lists the sockets at an address and a port. A dual-stack socket is bound to the IPv4 address of
/// its function, which is `other` if `address` is of IPv6.
pub fn at(
    socket: &mut Socket,
    address: IpAddr,
    other: Option<Ipv4Addr>,
    port: u16,
) -> Result<Vec<Listener>, BatchFailure> {
    let families = if address.is_ipv4() { &[AF_INET, AF_INET6][..] } else { &[AF_INET6] };
    let mut found = Vec::new();
    for family in families {
        for (transport, protocol, state) in
            [(Transport::Tcp, TCP, LISTEN), (Transport::Udp, UDP, CLOSE)]
        {
            let waiting = sockets(socket, *family, protocol)?.into_iter();
            let own = waiting.filter_map(|message| read(&message, state, port));
            let is_reached = |own: &IpAddr| match own.to_canonical() {
                IpAddr::V4(own4) if own.is_ipv6() => address == own4 || other == Some(own4),
                own => own == address || own.is_unspecified() && own.is_ipv4() == address.is_ipv4(),
            };
            let reached = own.filter(is_reached);
            found.extend(reached.map(|address| Listener { transport, address }));
        }
    }
    Ok(found)
}

/// The local address of a socket in this state and on this port, from `struct inet_diag_msg`.
fn read(message: &Parsed, state: u8, port: u16) -> Option<IpAddr> {
    let body = &message.body;
    if *body.get(1)? != state || body.get(4..6)? != port.to_be_bytes() {
        return None;
    }
    let octets: [u8; 16] = body.get(8..24)?.try_into().ok()?;
    let [a, b, c, d, ..] = octets;
    match body[0] {
        AF_INET => Some(Ipv4Addr::new(a, b, c, d).into()),
        _ => Some(Ipv6Addr::from(octets).into()),
    }
}
