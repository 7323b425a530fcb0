//! Messages that give a device a rate (a token bucket) and a delay.
//!
//! Both ends of a link have the rate, which limits both directions; only the host's end has the
//! delay, so that it applies to a packet once per link.

use snowmelt_network::netlink::*;

use crate::parameters::{BitRate, LabLink};
use crate::{Error, Result};

/// Handles of the two queueing disciplines, and the class of the outer one that contains the inner.
const OUTER: u32 = 1 << 16;
const INNER: u32 = 2 << 16;
const CLASS: u32 = OUTER | 1;
/// `TC_H_ROOT`.
const ROOT: u32 = u32::MAX;
/// The greatest number of packets in the delay queue: enough for 10 Gbit/s over 10 ms.
const QUEUE_PACKETS: u32 = 16_384;
/// The least size of the token bucket in bytes: the kernel splits packets larger than the bucket,
/// and merged packets (GSO) have up to 64 KiB.
const MIN_BURST: u64 = 128 << 10;

/// Shapes a device that is not shaped yet.
pub fn add(socket: &mut Socket, index: u32, link: LabLink) -> Result<()> {
    if let Some(delay) = link.delay {
        let mut batch = Batch::new();
        let nanoseconds = i64::try_from(delay.as_nanos()).unwrap_or(i64::MAX);
        add_delay(&mut batch, index, nanoseconds);
        run(socket, batch, "delay", "sch_netem")?;
    }
    if let Some(rate) = link.rate {
        let mut batch = Batch::new();
        let (parent, handle) = if link.delay.is_some() { (CLASS, INNER) } else { (ROOT, OUTER) };
        add_rate(&mut batch, index, rate, parent, handle);
        run(socket, batch, "slow down", "sch_tbf")?;
    }
    Ok(())
}

/// Removes what [`add`] added.
pub fn remove(socket: &mut Socket, index: u32, link: LabLink) -> Result<()> {
    if link == LabLink::default() {
        return Ok(());
    }
    let mut batch = Batch::new();
    batch.add("remove the shape of a link", RTM_DELQDISC, 0, &fixed(index, ROOT, OUTER), |_| {});
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
fn add_rate(batch: &mut Batch, index: u32, rate: BitRate, parent: u32, handle: u32) {
    let bytes = rate.bytes();
    // The burst is what the link sends in 2 ms, the queue what it sends in 50 ms.
    let burst = (bytes / 500).max(MIN_BURST) as u32;
    let limit = u64::from(burst).saturating_add(bytes / 20).min(u32::MAX.into()) as u32;
    batch.add("shape a link", RTM_NEWQDISC, NEW, &fixed(index, parent, handle), |a| {
        a.text(TCA_KIND, "tbf").nest(TCA_OPTIONS, |a| {
            a.bytes(TCA_TBF_PARMS, &bucket(u32::try_from(bytes).unwrap_or(u32::MAX), limit));
            a.bytes(TCA_TBF_RATE64, &bytes.to_ne_bytes());
            a.u32(TCA_TBF_BURST, burst);
        });
    });
}

fn bucket(rate: u32, limit: u32) -> [u8; 36] {
    let mut bytes = [0; 36];
    // `linklayer` is Ethernet: the kernel computes the times itself, without a rate table.
    bytes[1] = 1;
    bytes[8..12].copy_from_slice(&rate.to_ne_bytes());
    bytes[24..28].copy_from_slice(&limit.to_ne_bytes());
    bytes
}

/// `sch_netem`: `struct tc_netem_qopt` and its attributes.
fn add_delay(batch: &mut Batch, index: u32, nanoseconds: i64) {
    let mut options = [0; 24];
    options[4..8].copy_from_slice(&QUEUE_PACKETS.to_ne_bytes());
    batch.add("delay a link", RTM_NEWQDISC, NEW, &fixed(index, ROOT, OUTER), |a| {
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
