//! What is left in a namespace: connections, routes and neighbours.

use serde::{Deserialize, Serialize};

use crate::namespace::Namespace;
use crate::netlink::*;

/// `SOCK_DIAG_BY_FAMILY` of `linux/sock_diag.h`.
const BY_FAMILY: u16 = 20;
/// `SOCK_DESTROY` there.
const DESTROY: u16 = 21;
/// States of `net/tcp_states.h` in which the other end knows all that it will be told:
/// `TCP_FIN_WAIT2`, `TCP_TIME_WAIT`, `TCP_CLOSE` and `TCP_LISTEN`.
const TOLD_ALL: [u8; 4] = [5, 6, 7, 10];
/// As many requests as fit into one datagram.
const AT_ONCE: usize = 500;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;

/// What there is in a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remains {
    /// TCP and UDP sockets, connections that only wait for their end among them.
    pub sockets: usize,
    /// Routes of the job's: the kernel's own are not counted.
    pub routes: usize,
    /// Neighbours and forwarding entries.
    pub neighbours: usize,
}

/// What functions have still to tell others, which the kernel goes on to do when they have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unsent {
    /// Bytes that nobody has acknowledged.
    pub bytes: u64,
    /// Connections whose other end does not know that they are closed.
    pub connections: usize,
}

impl Remains {
    /// Whether there is nothing.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// Counts it.
pub fn of(namespace: &mut Namespace) -> Result<Remains, Failed> {
    let mut remains = Remains::default();
    for (family, protocol) in [(AF_INET, TCP), (AF_INET, UDP), (AF_INET6, TCP), (AF_INET6, UDP)] {
        remains.sockets += sockets(&mut namespace.diagnosis, family, protocol)?.len();
    }
    remains.routes = list(&mut namespace.route, "list routes", RTM_GETROUTE, &[0; 12])?
        .iter()
        .filter(|message| message.body.get(5) == Some(&RTPROT_STATIC))
        .count();
    for family in [AF_INET6, AF_BRIDGE] {
        let mut fixed = [0; 12];
        fixed[0] = family;
        let found = list(&mut namespace.route, "list neighbours", RTM_GETNEIGH, &fixed)?;
        remains.neighbours += found.iter().filter(|message| is_lasting(message)).count();
    }
    Ok(remains)
}

/// All states, any address.
pub fn sockets(socket: &mut Socket, family: u8, protocol: u8) -> Result<Vec<Parsed>, Failed> {
    let mut fixed = any_state(family, protocol);
    fixed.extend([0; 48]);
    list(socket, "list sockets", BY_FAMILY, &fixed)
}

fn list(
    socket: &mut Socket,
    step: &'static str,
    kind: u16,
    fixed: &[u8],
) -> Result<Vec<Parsed>, Failed> {
    let mut batch = Batch::new();
    batch.add(step, (kind, NLM_F_DUMP), fixed, |_| {});
    socket.ask(batch)
}

/// Said by us, and leads somewhere: devices have entries for multicast addresses of their own.
fn is_lasting(message: &Parsed) -> bool {
    let state = message.body.get(8..10).and_then(|state| state.try_into().ok());
    let permanent = state.is_some_and(|state| u16::from_ne_bytes(state) & NUD_PERMANENT != 0);
    permanent && message.attribute(12, NDA_DST).is_some()
}

/// Ends all connections, also those whose function is gone and that wait for an answer which will
/// not come: the kernel would try for minutes, and the namespace would be there as long. A kernel
/// without `CONFIG_INET_DIAG_DESTROY` does just that.
pub fn end_connections(namespace: &mut Namespace) {
    for family in [AF_INET, AF_INET6] {
        let found = sockets(&mut namespace.diagnosis, family, TCP).unwrap_or_default();
        for some in found.chunks(AT_ONCE) {
            let mut batch = Batch::new();
            for message in some {
                // `id` of `struct inet_diag_msg`.
                let Some(id) = message.body.get(4..52) else { continue };
                let mut fixed = any_state(family, TCP);
                fixed.extend(id);
                batch.add("end a connection", (DESTROY, 0), &fixed, |_| {});
            }
            // One that ended by itself is none; the others are ended all the same.
            drop(namespace.diagnosis.run(batch));
        }
    }
}

/// What functions have still to tell others.
pub fn unsent(namespace: &mut Namespace) -> Result<Unsent, Failed> {
    let mut unsent = Unsent::default();
    for family in [AF_INET, AF_INET6] {
        for message in sockets(&mut namespace.diagnosis, family, TCP)? {
            // `idiag_state` and `idiag_wqueue` of `struct inet_diag_msg`.
            let (Some(state), Some(queue)) = (message.body.get(1), message.body.get(60..64)) else {
                continue;
            };
            if !TOLD_ALL.contains(state) {
                let queue = queue.try_into().map_or(0, u32::from_ne_bytes);
                unsent.bytes += u64::from(queue);
                unsent.connections += 1;
            }
        }
    }
    Ok(unsent)
}

/// `struct inet_diag_req_v2` up to `id`.
fn any_state(family: u8, protocol: u8) -> Vec<u8> {
    let mut fixed = vec![family, protocol, 0, 0];
    fixed.extend(u32::MAX.to_ne_bytes());
    fixed
}
