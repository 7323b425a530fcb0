//! The contents of a namespace: connections, routes and neighbours.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::devices::Namespace;
use crate::netlink::*;

/// `SOCK_DIAG_BY_FAMILY` of `linux/sock_diag.h`.
const BY_FAMILY: u16 = 20;
/// `SOCK_DESTROY` there.
const DESTROY: u16 = 21;
/// States of `net/tcp_states.h` in which the peer has received and acknowledged everything:
/// `TCP_FIN_WAIT2`, `TCP_TIME_WAIT`, `TCP_CLOSE` and `TCP_LISTEN`.
const ALL_ACKNOWLEDGED: [u8; 4] = [5, 6, 7, 10];
/// The number of requests that fit into one datagram.
const PER_BATCH: usize = 500;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;

/// The number of objects in a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamespaceContents {
    /// TCP and UDP sockets, including connections in TIME_WAIT.
    pub sockets: usize,
    /// Static routes; the kernel's own are not counted.
    pub routes: usize,
    /// Neighbours and forwarding entries.
    pub neighbours: usize,
}

/// TCP data and closes not yet acknowledged, which the kernel goes on sending after functions end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsent {
    /// The number of unacknowledged bytes.
    pub bytes: u64,
    /// The number of connections whose peer has not yet acknowledged the close.
    pub connections: usize,
}

impl NamespaceContents {
    /// Whether all counts are zero.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Counts the objects.
pub fn of(namespace: &mut Namespace) -> Result<NamespaceContents, BatchFailure> {
    let mut contents = NamespaceContents::default();
    for (family, protocol) in [(AF_INET, TCP), (AF_INET, UDP), (AF_INET6, TCP), (AF_INET6, UDP)] {
        contents.sockets += sockets(&mut namespace.diagnosis, family, protocol)?.len();
    }
    contents.routes = list(&mut namespace.route, "list routes", RTM_GETROUTE, &[0; 12])?
        .iter()
        .filter(|message| message.body.get(5) == Some(&RTPROT_STATIC))
        .count();
    for family in [AF_INET6, AF_BRIDGE] {
        let mut fixed = [0; 12];
        fixed[0] = family;
        let found = list(&mut namespace.route, "list neighbours", RTM_GETNEIGH, &fixed)?;
        contents.neighbours += found.iter().filter(|message| is_lasting(message)).count();
    }
    Ok(contents)
}

/// All sockets of a family and a protocol, in any state and at any address.
pub fn sockets(socket: &mut Socket, family: u8, protocol: u8) -> Result<Vec<Parsed>, BatchFailure> {
    let mut fixed = any_state(family, protocol);
    fixed.extend([0; 48]);
    list(socket, "list sockets", BY_FAMILY, &fixed)
}

fn list(
    socket: &mut Socket,
    step: &'static str,
    kind: u16,
    fixed: &[u8],
) -> Result<Vec<Parsed>, BatchFailure> {
    let mut batch = Batch::new();
    batch.add(step, kind, NLM_F_DUMP, fixed, |_| {});
    socket.ask(batch)
}

/// Whether an entry was made by the platform: permanent, and with a destination. Devices have
/// permanent entries for multicast addresses too.
fn is_lasting(message: &Parsed) -> bool {
    let state = message.body.get(8..10).and_then(|state| state.try_into().ok());
    let permanent = state.is_some_and(|state| u16::from_ne_bytes(state) & NUD_PERMANENT != 0);
    permanent && message.attribute(12, NDA_DST).is_some()
}

/// Ends all connections, also orphaned ones that wait for an answer which will never arrive: the
/// kernel would retry for minutes, and the namespace would exist as long. That happens on a kernel
/// without `CONFIG_INET_DIAG_DESTROY`.
pub fn end_connections(namespace: &mut Namespace) {
    for family in [AF_INET, AF_INET6] {
        let found = sockets(&mut namespace.diagnosis, family, TCP).unwrap_or_default();
        for some in found.chunks(PER_BATCH) {
            let mut batch = Batch::new();
            for message in some {
                // `id` of `struct inet_diag_msg`.
                let Some(id) = message.body.get(4..52) else { continue };
                let mut fixed = any_state(family, TCP);
                fixed.extend(id);
                batch.add("end a connection", DESTROY, 0, &fixed, |_| {});
            }
            // A connection that has ended meanwhile is an error; the others are ended all the same.
            drop(namespace.diagnosis.run(batch));
        }
    }
}

/// The data and closes that are not acknowledged yet.
pub fn unsent(namespace: &mut Namespace) -> Result<Unsent, BatchFailure> {
    let mut unsent = Unsent::default();
    for family in [AF_INET, AF_INET6] {
        for message in sockets(&mut namespace.diagnosis, family, TCP)? {
            // `idiag_state` and `idiag_wqueue` of `struct inet_diag_msg`.
            let (Some(state), Some(queue)) = (message.body.get(1), message.body.get(60..64)) else {
                continue;
            };
            if !ALL_ACKNOWLEDGED.contains(state) {
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
