//! The designs of the Particle paper, 3.1, each with one namespace for all endpoints; and the
//! floor below all of them.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::Result;
use snowmelt_network::netlink::Batch;

use super::bed::{self, Bed, Namespace, address_of};
use super::{Made, time_of};

/// One namespace, one pair of devices, one overlay, all up, and nothing else.
pub fn floor(bed: &mut Bed) -> Result<Made> {
    let begun = Instant::now();
    let before = bed.host.messages();
    let mut one = Namespace::make()?;
    let mut batch = Batch::new();
    bed::add_pair(&mut batch, "v0", 0, "eth0", Some(one.fd.as_fd()));
    bed::add_overlay(&mut batch, one.fd.as_fd(), 3, 8, Ipv4Addr::LOCALHOST, None);
    bed.host.run(batch)?;
    let mut batch = Batch::new();
    for index in [1, 3] {
        bed::set_up(&mut batch, index);
    }
    one.route.run(batch)?;
    let took = begun.elapsed();
    let messages = bed.host.messages() - before + one.route.messages();
    let teardown = time_of(|| {
        drop(one);
        gone(bed, "v0")
    })?;
    Ok(Made { took, messages, moves: 0, hold_us_each: None, teardown })
}

/// Design 1: the conventional way but for the namespace.
pub fn shared(bed: &mut Bed, endpoints: u32) -> Result<Made> {
    let begun = Instant::now();
    let before = bed.messages();
    let mut guest = Namespace::make()?;
    for endpoint in 0..endpoints {
        let inner = format!("g{endpoint}");
        let outer = format!("v{endpoint}");
        let mut batch = Batch::new();
        bed::add_pair(&mut batch, &inner, number(endpoint), &outer, None);
        bed::move_to(&mut batch, &outer, bed.vtep.fd.as_fd());
        bed::move_to(&mut batch, &inner, guest.fd.as_fd());
        bed.host.run(batch)?;
        let mut batch = Batch::new();
        bed::plug_in(&mut batch, &outer);
        bed.vtep.route.run(batch)?;
        let mut batch = Batch::new();
        finish(&mut batch, endpoint);
        guest.route.run(batch)?;
    }
    end(bed, guest, begun, before, endpoints, 2 * u64::from(endpoints))
}

/// Design 2: all pairs in the shared namespace at once, then their other ends moved in a batch.
pub fn batched(bed: &mut Bed, endpoints: u32) -> Result<Made> {
    let begun = Instant::now();
    let before = bed.messages();
    let mut guest = Namespace::make()?;
    let name = |endpoint| (format!("g{endpoint}"), format!("v{endpoint}"));
    let mut pairs = Batch::new();
    let mut moves = Batch::new();
    let mut ports = Batch::new();
    for endpoint in 0..endpoints {
        let (inner, outer) = name(endpoint);
        bed::add_pair(&mut pairs, &inner, number(endpoint), &outer, None);
        bed::move_to(&mut moves, &outer, bed.vtep.fd.as_fd());
        bed::plug_in(&mut ports, &outer);
    }
    guest.route.run(pairs)?;
    guest.route.run(moves)?;
    bed.vtep.route.run(ports)?;
    let mut batch = Batch::new();
    (0..endpoints).for_each(|endpoint| finish(&mut batch, endpoint));
    guest.route.run(batch)?;
    end(bed, guest, begun, before, endpoints, u64::from(endpoints))
}

/// The final design: one pair for all, and an address for each.
pub fn consolidated(bed: &mut Bed, endpoints: u32) -> Result<Made> {
    let begun = Instant::now();
    let before = bed.messages();
    let mut guest = Namespace::make()?;
    let mut batch = Batch::new();
    bed::add_pair(&mut batch, "eth0", number(0), "v0", None);
    bed::move_to(&mut batch, "v0", bed.vtep.fd.as_fd());
    guest.route.run(batch)?;
    let mut batch = Batch::new();
    bed::plug_in(&mut batch, "v0");
    bed.vtep.route.run(batch)?;
    let mut batch = Batch::new();
    bed::set_up(&mut batch, number(0));
    for endpoint in 0..endpoints {
        bed::add_address(&mut batch, number(0), address_of(endpoint));
    }
    guest.route.run(batch)?;
    end(bed, guest, begun, before, endpoints, 1)
}

/// The number of an endpoint's device, so that it can be named without asking for it.
fn number(endpoint: u32) -> u32 {
    100_000 + endpoint
}

fn finish(batch: &mut Batch, endpoint: u32) {
    bed::set_up(batch, number(endpoint));
    bed::add_address(batch, number(endpoint), address_of(endpoint));
}

fn end(
    bed: &mut Bed,
    mut guest: Namespace,
    begun: Instant,
    before: u64,
    endpoints: u32,
    moves: u64,
) -> Result<Made> {
    let took = begun.elapsed();
    let messages = bed.messages() - before + guest.route.messages();
    let mut batch = Batch::new();
    bed::set_up(&mut batch, 1);
    guest.route.run(batch)?;
    let inside = guest.fd.as_fd();
    bed::check((inside, address_of(0)), (inside, address_of(endpoints - 1)))?;
    let teardown = time_of(|| {
        drop(guest);
        bed.settle()
    })?;
    Ok(Made { took, messages, moves, hold_us_each: None, teardown })
}

/// Waits until a device of the host's is no more.
fn gone(bed: &mut Bed, name: &str) -> Result<()> {
    use snowmelt_network::netlink::{IFLA_IFNAME, RTM_GETLINK};
    loop {
        let mut batch = Batch::new();
        batch.add("look", RTM_GETLINK, 0, &bed::link(0, 0), |a| {
            a.text(IFLA_IFNAME, name);
        });
        if bed.host.ask(batch).is_err() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
