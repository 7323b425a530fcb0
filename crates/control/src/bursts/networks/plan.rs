//! Plans the networks of jobs: which overlay a job has, and which addresses each host.
//!
//! A host's part is contiguous, and one size fits all hosts of a job, so each of them knows the
//! others by one route (Particle 4). Jobs are apart by their overlays; all may have the same
//! addresses.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snowmelt_api::NetworkRequest;
use snowmelt_network::{JobPeer, JobSpec, Range, prefix_for};
use snowmelt_tasks::agent::api::HostRanks;
use snowmelt_types::{Code, ErrorReport, JobId, Tenant};

use crate::bursts::RankRange;

/// The base addresses of jobs' networks: private, and rarely used elsewhere (RFC 1918, RFC 4193).
const BASE4: Ipv4Addr = Ipv4Addr::new(10, 192, 0, 0);
const PREFIX4: u8 = 10;
const BASE6: [u16; 2] = [0xfd73, 0x6d00];

/// The most overlays: their numbers have 24 bits, and 0 is not used.
const MAX_OVERLAYS: u32 = (1 << 24) - 1;

/// The overlays that are taken. Cheap to clone.
#[derive(Clone, Debug)]
pub(in crate::bursts) struct Overlays {
    taken: Arc<Mutex<(u32, BTreeSet<u32>)>>,
}

/// An overlay's number; given back when dropped.
#[derive(Debug)]
pub(in crate::bursts) struct Overlay {
    number: u32,
    taken: Arc<Mutex<(u32, BTreeSet<u32>)>>,
}

impl Overlays {
    /// Makes an empty set. Numbers begin at a random one, because hosts may still be ending jobs of
    /// an earlier control.
    pub fn new() -> Self {
        let begin = u32::try_from(uuid::Uuid::new_v4().as_u128() >> 104).unwrap_or(0);
        Self { taken: Arc::new(Mutex::new((begin % MAX_OVERLAYS, BTreeSet::new()))) }
    }

    /// Takes an overlay that no other job has.
    pub fn take(&self) -> Result<Overlay, ErrorReport> {
        let mut taken = lock(&self.taken);
        let (last, numbers) = &mut *taken;
        if numbers.len() >= MAX_OVERLAYS as usize {
            return Err(ErrorReport::new(Code::NETWORK_TAKEN, "every overlay is taken"));
        }
        loop {
            *last = *last % MAX_OVERLAYS + 1;
            if numbers.insert(*last) {
                return Ok(Overlay { number: *last, taken: Arc::clone(&self.taken) });
            }
        }
    }

    /// Takes the overlay that a job of an earlier control has.
    pub fn keep(&self, number: u32) -> Overlay {
        lock(&self.taken).1.insert(number);
        Overlay { number, taken: Arc::clone(&self.taken) }
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        lock(&self.taken).1.remove(&self.number);
    }
}

/// The plan of a job's network: the specification for each host, and the ranks and addresses of
/// all.
pub(in crate::bursts) struct NetworkPlan {
    pub specs: Vec<JobSpec>,
    pub ranks: Vec<HostRanks>,
}

/// Makes the plan of a job's network: gives each part its addresses.
pub(in crate::bursts) fn plan(
    job: &JobId,
    tenant: &Tenant,
    request: &NetworkRequest,
    overlay: &Overlay,
    parts: &[RankRange],
) -> Result<NetworkPlan, ErrorReport> {
    let hosts = u32::try_from(parts.len()).unwrap_or(u32::MAX);
    let most = parts.iter().map(|part| part.count).max().unwrap_or(1);
    let part4 = prefix_for(most, 32);
    let bits = hosts.next_power_of_two().trailing_zeros() as u8;
    let too_many = || {
        let message = format!("{job} needs more addresses than there are in {BASE4}/{PREFIX4}");
        ErrorReport::new(Code::NETWORK_SPEC, message).hint("run fewer functions at once")
    };
    let prefix4 = part4.checked_sub(bits).filter(|prefix| *prefix >= PREFIX4);
    let prefix4 = prefix4.ok_or_else(too_many)?;
    let range4 = Range::v4(BASE4, prefix4);
    let range6 = range6(overlay.number).ok_or_else(too_many)?;
    let part6 = 96 + part4;
    let mut peers = Vec::with_capacity(parts.len());
    for (number, part) in (0..).zip(parts) {
        let address = part.host.underlay().ok_or_else(|| unknown(part))?;
        let own = (range4.part(part4, number), range6.part(part6, number));
        let (Some(range4), Some(range6)) = own else { return Err(too_many()) };
        peers.push(JobPeer { host: address, range4, range6 });
    }
    let spec = |own: &JobPeer| JobSpec {
        job: job.as_str().to_owned(),
        tenant: tenant.clone(),
        vni: overlay.number,
        range4,
        range6,
        own4: own.range4,
        own6: own.range6,
        host: own.host,
        peers: peers.iter().filter(|peer| peer.host != own.host).copied().collect(),
        egress: request.egress.clone(),
    };
    let ranks = parts.iter().zip(&peers).map(|(part, peer)| HostRanks {
        first: part.first,
        count: part.count,
        range4: peer.range4,
        range6: peer.range6,
    });
    Ok(NetworkPlan { specs: peers.iter().map(spec).collect(), ranks: ranks.collect() })
}

fn range6(overlay: u32) -> Option<Range> {
    let [first, second] = BASE6;
    let high = (overlay >> 16) as u16;
    let low = (overlay & 0xffff) as u16;
    let base = Ipv6Addr::new(first, second, high, low, 0, 0, 0, 0);
    Range::new(IpAddr::V6(base), 64)
}

fn unknown(part: &RankRange) -> ErrorReport {
    let message = format!("it is not known how other hosts reach {}", part.host.name);
    ErrorReport::new(Code::NETWORK_SPEC, message)
        .hint("give control an address of its own: `snowmelt up --listen ADDRESS`")
}

fn lock(taken: &Mutex<(u32, BTreeSet<u32>)>) -> MutexGuard<'_, (u32, BTreeSet<u32>)> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_jobs_have_one_overlay_and_it_is_given_back() {
        let overlays = Overlays::new();
        let taken: Vec<Overlay> = (0..100).map(|_| overlays.take().unwrap()).collect();
        let numbers: BTreeSet<u32> = taken.iter().map(|overlay| overlay.number).collect();
        assert_eq!(numbers.len(), 100);
        assert!(numbers.iter().all(|number| (1..=MAX_OVERLAYS).contains(number)));
        drop(taken);
        assert!(lock(&overlays.taken).1.is_empty());
    }

    #[test]
    fn after_the_last_overlay_comes_the_first() {
        let overlays = Overlays::new();
        lock(&overlays.taken).0 = MAX_OVERLAYS;
        assert_eq!(overlays.take().unwrap().number, 1);
    }
}
