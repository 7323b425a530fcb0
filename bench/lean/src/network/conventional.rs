//! The conventional overlay: a namespace and a pair of devices for each endpoint (Figure 2 of the
//! paper), by netlink in this process.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use anyhow::Result;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use snowmelt_network::netlink::*;

use super::bed::{self, Bed, GUEST, Namespace, address_of};
use super::{Made, time_of};

/// Connects the endpoints one after the other, pairs made on the host and moved, or made in place.
pub fn connect(bed: &mut Bed, endpoints: u32, moved: bool) -> Result<Made> {
    let begun = Instant::now();
    let before = bed.messages();
    let mut guests = Vec::new();
    for endpoint in 0..endpoints {
        guests.push(match moved {
            true => by_moving(bed, endpoint)?,
            false => in_place(bed, endpoint)?,
        });
    }
    let took = begun.elapsed();
    let inside: u64 = guests.iter().map(|guest| guest.route.messages()).sum();
    let messages = bed.messages() - before + inside;
    let first = &guests[0];
    let last = &guests[guests.len() - 1];
    let ends = (address_of(0), address_of(endpoints - 1));
    bed::check((first.fd.as_fd(), ends.0), (last.fd.as_fd(), ends.1))?;
    let teardown = time_of(|| {
        drop(guests);
        bed.settle()
    })?;
    let moves = if moved { 2 * u64::from(endpoints) } else { 0 };
    Ok(Made { took, messages, moves, hold_us_each: None, teardown })
}

/// As `ip` does it: both ends on the host, then each to where it belongs.
fn by_moving(bed: &mut Bed, endpoint: u32) -> Result<Namespace> {
    let mut guest = Namespace::make()?;
    let inner = format!("g{endpoint}");
    let outer = format!("v{endpoint}");
    let mut batch = Batch::new();
    bed::add_pair(&mut batch, &inner, 0, &outer, None);
    bed::move_to(&mut batch, &outer, bed.vtep.fd.as_fd());
    bed::move_to(&mut batch, &inner, guest.fd.as_fd());
    bed.host.run(batch)?;
    let mut batch = Batch::new();
    bed::plug_in(&mut batch, &outer);
    bed.vtep.route.run(batch)?;
    let mut batch = Batch::new();
    bed::set_up(&mut batch, 1);
    bed::set_up_name(&mut batch, &inner);
    guest.route.run(batch)?;
    let index = number_of(guest.fd.as_fd(), &inner)?;
    let mut batch = Batch::new();
    bed::add_address(&mut batch, index, address_of(endpoint));
    guest.route.run(batch)?;
    Ok(guest)
}

/// The number of a device in a namespace, which the kernel gave it or it had elsewhere before.
pub fn number_of(namespace: BorrowedFd<'_>, name: &str) -> Result<u32> {
    bed::within(namespace, || {
        let family = AddressFamily::INET;
        let kind = SocketType::DGRAM;
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        Ok(name_to_index(socket, name)?)
    })
}

/// The best that this design can do: nothing is moved, and three calls for each endpoint.
pub fn in_place(bed: &mut Bed, endpoint: u32) -> Result<Namespace> {
    let mut guest = Namespace::make()?;
    let outer = format!("v{endpoint}");
    let mut batch = Batch::new();
    bed::add_pair(&mut batch, "eth0", GUEST, &outer, Some(bed.vtep.fd.as_fd()));
    bed::set_up(&mut batch, 1);
    bed::set_up(&mut batch, GUEST);
    bed::add_address(&mut batch, GUEST, address_of(endpoint));
    guest.route.run(batch)?;
    let mut batch = Batch::new();
    bed::plug_in(&mut batch, &outer);
    bed.vtep.route.run(batch)?;
    Ok(guest)
}

/// Tells an endpoint ahead which hardware addresses others have, as the best control plane would:
/// nobody asks by broadcast.
pub fn introduce(guest: &mut Namespace, endpoint: u32, others: Range<u32>) -> Result<()> {
    let mut batch = Batch::new();
    batch.add("give a hardware address", RTM_NEWLINK, 0, &bed::link(GUEST, 1), |a| {
        a.bytes(IFLA_ADDRESS, &mac_of(endpoint));
    });
    let mut fixed = [0; 12];
    fixed[0] = AF_INET;
    fixed[4..8].copy_from_slice(&GUEST.to_ne_bytes());
    fixed[8..10].copy_from_slice(&NUD_PERMANENT.to_ne_bytes());
    for other in others {
        batch.add("add a neighbour", RTM_NEWNEIGH, NEW, &fixed, |a| {
            a.bytes(NDA_DST, &address_of(other).octets()).bytes(NDA_LLADDR, &mac_of(other));
        });
    }
    Ok(guest.route.run(batch)?)
}

/// Given by software, not by a manufacturer.
fn mac_of(endpoint: u32) -> [u8; 6] {
    let [a, b, c, d] = endpoint.to_be_bytes();
    [0x02, 0x74, a, b, c, d]
}
