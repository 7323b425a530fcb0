//! The host's side of egress: the gateway through which packets of jobs leave, and no connection
//! enters.
//!
//! Its rules are created for the first job with an egress policy, and are removed with the node.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Mutex;

use rustix::net::netlink::NETFILTER;

use super::table::{Device, FilterTable, Hook, RulePart};
use crate::devices::link;
use crate::devices::{HostNamespace, lock};
use crate::netlink::*;
use crate::policy::always_denied;
use crate::preparation::PREFIX;
use crate::{Error, JobSpec, Range, Result};

/// The protocol number of UDP.
pub const UDP: u8 = 17;
const OURS: Device = Device::Prefix(PREFIX);
/// `IFLA_INET_CONF`, `IPV4_DEVCONF_FORWARDING`.
const SETTINGS: u16 = 1;
const FORWARDING: u16 = 1;

/// Matches the overlay port of other hosts, which no policy can grant either: packets with the
/// host's source address would be accepted as packets of whatever job they name.
pub fn overlay_port(port: u16) -> [RulePart; 2] {
    [RulePart::Protocol(UDP), RulePart::Ports(port, port)]
}

/// The egress gateway, with the addresses of the veth pairs that lead to it.
#[derive(Debug)]
pub struct Gate {
    /// The addresses for veth pairs, two for each pair.
    links: Range,
    /// The UDP port of the overlays.
    overlays: u16,
    state: Mutex<State>,
    /// The socket that owns the rules, opened in the host's namespace; the kernel removes the rules
    /// when it is closed.
    rules: Option<Mutex<Socket>>,
}

#[derive(Debug, Default)]
struct State {
    taken: BTreeSet<u32>,
    is_made: bool,
}

/// The two addresses of a pair, and its index in the range.
#[derive(Clone, Copy, Debug)]
pub struct AddressPair {
    index: u32,
    /// The host's end.
    pub host: Ipv4Addr,
    /// The job's end.
    pub job: Ipv4Addr,
}

impl Gate {
    /// Opens a socket in the calling thread's namespace. No rules are created yet.
    pub fn new(links: Range, overlays: u16) -> Self {
        let rules = Socket::open(Some(NETFILTER)).ok().map(Mutex::new);
        Self { links, overlays, state: Mutex::default(), rules }
    }

    /// Opens the route from a pair, given by its device on the host, to the destinations of the
    /// job's policy; returns the pair's addresses.
    pub fn open(&self, host: &HostNamespace, spec: &JobSpec, device: &str) -> Result<AddressPair> {
        self.make(&spec.job)?;
        let pair = self.take(&spec.job)?;
        let opened = self.connect(host, spec, device, pair);
        opened.inspect_err(|_| self.release(pair)).map(|()| pair)
    }

    /// The UDP port of the overlays, to which no policy grants access.
    pub fn overlays(&self) -> u16 {
        self.overlays
    }

    /// Releases the addresses of a pair.
    pub fn release(&self, pair: AddressPair) {
        lock(&self.state).taken.remove(&pair.index);
    }

    fn take(&self, job: &str) -> Result<AddressPair> {
        let mut state = lock(&self.state);
        let at =
            |index: u32, end: u32| match self.links.nth(u128::from(index) * 2 + u128::from(end)) {
                Some(IpAddr::V4(address)) => Some(address),
                _ => None,
            };
        let index = (0..).find(|index| !state.taken.contains(index)).unwrap_or(u32::MAX);
        let (Some(host), Some(end)) = (at(index, 0), at(index, 1)) else {
            let none = std::io::Error::other(format!("all addresses of {} are in use", self.links));
            return Err(Error::step(job, "find addresses for the pair", none));
        };
        state.taken.insert(index);
        Ok(AddressPair { index, host, job: end })
    }

    fn connect(
        &self,
        host: &HostNamespace,
        spec: &JobSpec,
        device: &str,
        pair: AddressPair,
    ) -> Result<()> {
        let job = &spec.job;
        let fail = |failed| Error::failed(job, failed);
        let missing = || Error::step(job, "find the pair", std::io::ErrorKind::NotFound.into());
        let ours = host.link(device).map_err(fail)?.ok_or_else(missing)?.index;
        let mut batch = Batch::new();
        let mut fixed = vec![AF_INET, 31, 0, 0];
        fixed.extend(ours.to_ne_bytes());
        batch.add("give the host's end an address", RTM_NEWADDR, NEW, &fixed, |a| {
            a.bytes(IFA_LOCAL, &pair.host.octets()).bytes(IFA_ADDRESS, &pair.host.octets());
        });
        if std::path::Path::new("/proc/sys/net/ipv6").exists() {
            link::without_ipv6_addresses(&mut batch, ours);
        }
        link::set_up(&mut batch, "set up the host's end of the pair", ours);
        let mut forwarding = BTreeSet::from([ours]);
        // Forwarding is a setting of the device at which a packet arrives: answers arrive at these.
        forwarding.extend(host.device_of(spec.host).map_err(fail)?);
        for allow in &spec.egress.0 {
            // From the middle of the range: the first address may be 0.0.0.0.
            if let Some(target) = allow.to.nth(allow.to.len() / 2) {
                forwarding.extend(host.device_to(target).map_err(fail)?);
            }
        }
        for index in forwarding {
            forward(&mut batch, index);
        }
        host.run(batch).map_err(fail)
    }

    fn make(&self, job: &str) -> Result<()> {
        let mut state = lock(&self.state);
        if state.is_made {
            return Ok(());
        }
        let none = || std::io::Error::other("this kernel has no nftables");
        let rules = self.rules.as_ref();
        let rules = rules.ok_or_else(|| Error::step(job, "make rules about packets", none()))?;
        let made = lock(rules).run(self.table());
        made.map_err(|failed| Error::failed(job, failed))?;
        // Only after the kernel has taken them, so that the next job tries again.
        state.is_made = true;
        Ok(())
    }

    fn table(&self) -> Batch {
        // Several nodes may share a host: each has its own table.
        let mut table = FilterTable::new(&format!("snowmelt-{}", std::process::id()), true);
        let from = RulePart::From(OURS, true);
        // From one job to another: never, whatever the policies say.
        let mut through = vec![vec![from, RulePart::To(OURS, true), RulePart::Drop]];
        through.extend(
            always_denied().map(|range| vec![from, RulePart::Target(range), RulePart::Drop]),
        );
        through.push([&[from], &overlay_port(self.overlays)[..], &[RulePart::Drop]].concat());
        through.push(vec![from, RulePart::Accept]);
        // Answers only: nothing outside can open a connection to a function.
        through.push(vec![RulePart::To(OURS, true), RulePart::Established, RulePart::Accept]);
        through.push(vec![RulePart::To(OURS, true), RulePart::Drop]);
        let through: Vec<&[RulePart]> = through.iter().map(Vec::as_slice).collect();
        table.chain(Hook::Forward, &through);
        table.chain(Hook::In, &[&[from, RulePart::Drop]]);
        let rewrite =
            [RulePart::Source(self.links), RulePart::To(OURS, false), RulePart::Masquerade];
        table.chain(Hook::Rewrite, &[&rewrite]);
        table.for_both_families();
        let to = RulePart::To(OURS, true);
        table.chain(
            Hook::Forward,
            &[&[from, RulePart::Ipv6, RulePart::Drop], &[to, RulePart::Ipv6, RulePart::Drop]],
        );
        table.chain(Hook::In, &[&[from, RulePart::Ipv6, RulePart::Drop]]);
        table.finish()
    }
}

/// Makes the host forward packets that arrive at a device.
fn forward(batch: &mut Batch, index: u32) {
    let fixed = link::fixed(index, 0, 0);
    batch.add("enable forwarding on a device", RTM_NEWLINK, 0, &fixed, |a| {
        a.nest(IFLA_AF_SPEC, |a| {
            a.nest(u16::from(AF_INET), |a| {
                a.nest(SETTINGS, |a| {
                    a.u32(FORWARDING, 1);
                });
            });
        });
    });
}
