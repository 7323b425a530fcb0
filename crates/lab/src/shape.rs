//! Messages that give a device a rate (a token bucket) and a delay.
//!
//! Both ends of a link have the rate, so that a host neither sends nor gets more, whoever sends;
//! the delay is at the host's end only, so that a packet meets it once on its way.

use snowmelt_network::netlink::*;

use crate::rate::{BitRate, Link};
use crate::{Error, Result};

/// Handles of the two queueing disciplines and the class of the outer one that the inner is in.
const OUTER: u32 = 1 << 16;
const INNER: u32 = 2 << 16;
const CLASS: u32 = OUTER | 1;
/// `TC_H_ROOT`.
const ROOT: u32 = u32::MAX;
/// Packets held back at once by a delay: enough for 10 Gbit a second over 10 ms.
const HELD_PACKETS: u32 = 16_384;
/// The kernel splits larger packets than a bucket holds, and one that it puts together has 64 KiB.
const LEAST_BURST: u64 = 128 << 10;

/// Shapes a device that is not shaped yet.
pub fn add(socket: &mut Socket, index: u32, link: Link) -> Result<()> {
    if let Some(delay) = link.delay {
        let mut batch = Batch::new();
        let nanoseconds = i64::try_from(delay.as_nanos()).unwrap_or(i64::MAX);
        add_delay(&mut batch, index, nanoseconds);
        run(socket, batch, "delay", "sch_netem")?;
    }
    if let Some(rate) = link.rate {
        let mut batch = Batch::new();
        let (parent, handle) = if link.delay.is_some() { (CLASS, INNER) } else { (ROOT, OUTER) };
        add_rate(&mut batch, index, rate, (parent, handle));
        run(socket, batch, "slow down", "sch_tbf")?;
    }
    Ok(())
}

/// Takes away what [`add`] gave.
pub fn remove(socket: &mut Socket, index: u32, link: Link) -> Result<()> {
    if link == Link::default() {
        return Ok(());
    }
    let mut batch = Batch::new();
    batch.add("take the shape from a link", (RTM_DELQDISC, 0), &fixed(index, ROOT, OUTER), |_| {});
    Ok(socket.run(batch)?)
}

fn run(socket: &mut Socket, batch: Batch, what: &'static str, module: &'static str) -> Result<()> {
    let unknown = Some(rustix::io::Errno::NOENT.raw_os_error());
    socket.run(batch).map_err(|failed| match failed.source.raw_os_error() {
        code if code == unknown => Error::Kernel { what, module },
        _ => failed.into(),
    })
}

/// `sch_tbf`: `struct tc_tbf_qopt` and its attributes.
fn add_rate(batch: &mut Batch, index: u32, rate: BitRate, (parent, handle): (u32, u32)) {
    let bytes = rate.bytes();
    // What a link sends in 2 ms may go at once, and 50 ms of it may wait.
    let burst = (bytes / 500).max(LEAST_BURST) as u32;
    let limit = u64::from(burst).saturating_add(bytes / 20).min(u32::MAX.into()) as u32;
    batch.add("shape a link", (RTM_NEWQDISC, NEW), &fixed(index, parent, handle), |a| {
        a.text(TCA_KIND, "tbf").nest(TCA_OPTIONS, |a| {
            a.bytes(TCA_TBF_PARMS, &bucket(u32::try_from(bytes).unwrap_or(u32::MAX), limit));
            a.bytes(TCA_TBF_RATE64, &bytes.to_ne_bytes());
            a.u32(TCA_TBF_BURST, burst);
        });
    });
}

fn bucket(rate: u32, limit: u32) -> [u8; 36] {
    let mut bytes = [0; 36];
    // `linklayer` is Ethernet: the kernel computes, and wants no table of times from us.
    bytes[1] = 1;
    bytes[8..12].copy_from_slice(&rate.to_ne_bytes());
    bytes[24..28].copy_from_slice(&limit.to_ne_bytes());
    bytes
}

/// `sch_netem`: `struct tc_netem_qopt` and its attributes.
fn add_delay(batch: &mut Batch, index: u32, nanoseconds: i64) {
    let mut options = [0; 24];
    options[4..8].copy_from_slice(&HELD_PACKETS.to_ne_bytes());
    batch.add("delay a link", (RTM_NEWQDISC, NEW), &fixed(index, ROOT, OUTER), |a| {
        a.text(TCA_KIND, "netem").nest_after(TCA_OPTIONS, &options, |a| {
            a.bytes(TCA_NETEM_LATENCY64, &nanoseconds.to_ne_bytes());
        });
    });
}

/// `struct tcmsg`.
fn fixed(index: u32, parent: u32, handle: u32) -> [u8; 20] {
    let mut bytes = [0; 20];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..12].copy_from_slice(&handle.to_ne_bytes());
    bytes[12..16].copy_from_slice(&parent.to_ne_bytes());
    bytes
}
