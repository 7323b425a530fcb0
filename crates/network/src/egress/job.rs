//! The job's side of egress: routes to the policy's destinations, and rules that refuse the rest.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::host::{self, AddressPair, UDP};
use super::table::{Device, FilterTable, Hook, RulePart};
use crate::Range;
use crate::devices::link::{self, EGRESS};
use crate::devices::route::{self, NextHop, Route};
use crate::netlink::*;
use crate::policy::{Allow, Egress, always_denied};

const DEVICE: Device = Device::Number(EGRESS);
const TCP: u8 = 6;
/// Limits of new connections of a job on a host, in a burst and per second after it: the host
/// tracks those of all jobs in one table, for two minutes each, and one job must not fill it.
const BURST: u32 = 16_384;
const PER_SECOND: u32 = 1_000;

/// Messages for the job's namespace: addresses and routes, and rules. The UDP port of the
/// `overlays` is refused whatever the policy.
pub fn grant(egress: &Egress, pair: AddressPair, overlays: u16) -> (Batch, Batch) {
    let own = pair.job;
    let gateway = pair.host;
    let mut batch = Batch::new();
    let mut fixed = vec![AF_INET, 31, 0, 0];
    fixed.extend(EGRESS.to_ne_bytes());
    batch.add("give the pair an address", RTM_NEWADDR, NEW, &fixed, |a| {
        a.bytes(IFA_LOCAL, &own.octets()).bytes(IFA_ADDRESS, &own.octets());
    });
    link::set_up(&mut batch, "set up the job's end of the pair", EGRESS);
    let targets: BTreeSet<Range> = egress.0.iter().map(|allow| allow.to).collect();
    for range in targets {
        let next_hop = NextHop::Via { gateway: IpAddr::V4(gateway), source: None };
        route::add(&mut batch, "add a route out", &Route { range, device: EGRESS, next_hop });
    }
    (batch, rules(egress, overlays))
}

/// The rules for the job's namespace.
pub fn rules(egress: &Egress, overlays: u16) -> Batch {
    let mut table = FilterTable::new("snowmelt", false);
    // Packets within the job are not tracked.
    table.chain(Hook::RawIn, &[&[RulePart::From(DEVICE, false), RulePart::Untracked]]);
    table.chain(Hook::RawOut, &[&[RulePart::To(DEVICE, false), RulePart::Untracked]]);
    table.chain(
        Hook::In,
        &[
            &[RulePart::From(DEVICE, false), RulePart::Accept],
            &[RulePart::Established, RulePart::Accept],
            &[RulePart::Drop],
        ],
    );
    let mut out = vec![vec![RulePart::To(DEVICE, false), RulePart::Accept]];
    // Before the policy's own entries: no policy can grant them.
    out.extend(always_denied().map(|range| vec![RulePart::Target(range), RulePart::Refuse]));
    out.push([&host::overlay_port(overlays)[..], &[RulePart::Refuse]].concat());
    // After what is always refused, which costs no entry in the host's table; before what is
    // allowed.
    out.push(vec![RulePart::New, RulePart::OverLimit(PER_SECOND, BURST), RulePart::Drop]);
    out.extend(egress.0.iter().flat_map(allowed));
    out.push(vec![RulePart::Refuse]);
    let out: Vec<&[RulePart]> = out.iter().map(Vec::as_slice).collect();
    table.chain(Hook::Out, &out);
    table.chain(Hook::Rewrite, &[&[RulePart::To(DEVICE, true), RulePart::Masquerade]]);
    // Policies name IPv4 only, and multicast needs no route.
    table.for_both_families();
    table.chain(Hook::In, &[&[RulePart::From(DEVICE, true), RulePart::Ipv6, RulePart::Drop]]);
    table.chain(Hook::Out, &[&[RulePart::To(DEVICE, true), RulePart::Ipv6, RulePart::Drop]]);
    table.finish()
}

/// The rules of one entry: one without ports, otherwise one for each port range and protocol.
fn allowed(allow: &Allow) -> Vec<Vec<RulePart>> {
    let target = RulePart::Target(allow.to);
    if allow.ports.is_empty() {
        return vec![vec![target, RulePart::Accept]];
    }
    let of = |protocol: u8| {
        let ports = allow.ports.iter();
        ports.map(move |&(first, last)| {
            vec![
                target,
                RulePart::Protocol(protocol),
                RulePart::Ports(first, last),
                RulePart::Accept,
            ]
        })
    };
    of(TCP).chain(of(UDP)).collect()
}
