//! The specification of a job's network on one host, as control sends it.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use snowmelt_types::Tenant;
use utoipa::ToSchema;

use crate::{Egress, Error, RESERVED, Range};

/// A job's network on one host.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobSpec {
    /// The job's name, unique on the host.
    pub job: String,
    /// The job's tenant.
    pub tenant: Tenant,
    /// The VNI of the overlay, 1 to 2^24 - 1, unique in the cluster.
    pub vni: u32,
    /// All IPv4 addresses of the job. Other jobs may have the same.
    pub range4: Range,
    /// All IPv6 addresses of the job.
    pub range6: Range,
    /// The part of `range4` that this host owns.
    pub own4: Range,
    /// The part of `range6` that this host owns.
    pub own6: Range,
    /// The address of this host in the underlay.
    #[schema(value_type = String)]
    pub host: IpAddr,
    /// Every other host of the job.
    pub peers: Vec<JobPeer>,
    /// The destinations outside the job that functions may reach.
    #[serde(default)]
    pub egress: Egress,
}

/// Another host of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Peer)]
pub struct JobPeer {
    /// The address of the host in the underlay.
    #[schema(value_type = String)]
    pub host: IpAddr,
    /// The host's part of the job's IPv4 addresses.
    pub range4: Range,
    /// The host's part of the job's IPv6 addresses.
    pub range6: Range,
}

/// The addresses of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Address {
    /// The IPv4 address.
    pub v4: Ipv4Addr,
    /// The IPv6 address.
    pub v6: Ipv6Addr,
}

impl JobSpec {
    /// The addresses of the function in a slot on this host, from 0.
    pub fn address(&self, slot: u32) -> Result<Address, Error> {
        let index = u128::from(slot) + u128::from(RESERVED);
        match (self.own4.nth(index), self.own6.nth(index)) {
            (Some(IpAddr::V4(v4)), Some(IpAddr::V6(v6))) => Ok(Address { v4, v6 }),
            (v4, _) => {
                let range = if v4.is_some() { self.own6 } else { self.own4 };
                Err(Error::Slot { job: self.job.clone(), slot, range })
            }
        }
    }

    /// The IPv4 address of the function that has this IPv6 address on this host.
    pub(crate) fn other_family(&self, address: IpAddr) -> Option<Ipv4Addr> {
        let (IpAddr::V6(address), IpAddr::V6(base)) = (address, self.own6.base()) else {
            return None;
        };
        let index = address.to_bits().checked_sub(base.to_bits())?;
        match self.own4.nth(index) {
            Some(IpAddr::V4(other)) => Some(other),
            _ => None,
        }
    }

    /// The host's own IPv4 address in the job.
    pub fn own_address(&self) -> Ipv4Addr {
        match self.own4.base() {
            IpAddr::V4(address) => address,
            IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
        }
    }

    /// Refuses an invalid specification.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |reason: String| Err(Error::Spec { job: self.job.clone(), reason });
        if self.vni == 0 || self.vni >= 1 << 24 {
            return refuse(format!("overlay {} is out of range: use 1 to 16777215", self.vni));
        }
        if !self.range4.is_ipv4() || self.range6.is_ipv4() {
            return refuse("a job needs one IPv4 range and one IPv6 range".to_owned());
        }
        if let Some(reason) = self.egress.fault() {
            return refuse(reason);
        }
        let own = JobPeer { host: self.host, range4: self.own4, range6: self.own6 };
        let mut known: Vec<JobPeer> = Vec::new();
        let mut hosts = BTreeSet::new();
        for part in std::iter::once(&own).chain(&self.peers) {
            if let Err(reason) = self.check_part(part) {
                return refuse(reason);
            }
            if !hosts.insert(part.host) {
                return refuse(format!("host {} is named twice", part.host));
            }
            known.push(*part);
        }
        match overlapping(&mut known) {
            Some(reason) => refuse(reason),
            None => Ok(()),
        }
    }

    /// Checks that a host's part belongs to this job's ranges.
    pub(crate) fn check_part(&self, part: &JobPeer) -> Result<(), String> {
        let within = |whole: &Range, part: &Range| {
            whole.contains(part.base()) && part.prefix() >= whole.prefix()
        };
        if !within(&self.range4, &part.range4) || !within(&self.range6, &part.range6) {
            return Err(format!(
                "the part of {} is not in {} and {}",
                part.host, self.range4, self.range6
            ));
        }
        if part.host.is_ipv4() != self.host.is_ipv4() {
            return Err(format!("{} and {} differ in address family", part.host, self.host));
        }
        Ok(())
    }
}

/// Two parts that have addresses in common, if there are any: adjacent when sorted by address.
fn overlapping(parts: &mut [JobPeer]) -> Option<String> {
    let mut clash = |range: fn(&JobPeer) -> Range| {
        parts.sort_by_key(range);
        let found = parts.windows(2).find(|pair| range(&pair[0]).overlaps(&range(&pair[1])));
        found.map(|pair| format!("{} and {} share addresses", pair[0].host, pair[1].host))
    };
    clash(|part| part.range4).or_else(|| clash(|part| part.range6))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> JobSpec {
        let range = |text: &str| text.parse::<Range>().unwrap();
        let part = |n| (range("10.9.0.0/16").part(24, n), range("fd00::/64").part(120, n));
        let (own4, own6) = part(0);
        let (range4, range6) = part(1);
        JobSpec {
            job: "j".into(),
            tenant: Tenant::default(),
            vni: 7,
            range4: range("10.9.0.0/16"),
            range6: range("fd00::/64"),
            own4: own4.unwrap(),
            own6: own6.unwrap(),
            host: "192.0.2.1".parse().unwrap(),
            peers: vec![JobPeer {
                host: "192.0.2.2".parse().unwrap(),
                range4: range4.unwrap(),
                range6: range6.unwrap(),
            }],
            egress: Egress::default(),
        }
    }

    #[test]
    fn functions_get_the_addresses_after_the_reserved_ones() {
        let spec = spec();
        assert!(spec.check().is_ok());
        let first = spec.address(0).unwrap();
        assert_eq!(
            (first.v4.to_string(), first.v6.to_string()),
            ("10.9.0.1".into(), "fd00::1".into())
        );
        assert_eq!(spec.other_family(first.v6.into()), Some(first.v4));
        assert_eq!(spec.other_family(first.v4.into()), None);
        assert_eq!(spec.other_family("fd00::1:0".parse().unwrap()), None);
        assert!(spec.address(254).is_ok());
        assert!(matches!(spec.address(255), Err(Error::Slot { slot: 255, .. })));
    }

    #[test]
    fn an_invalid_specification_is_refused_with_its_reason() {
        let reason = |change: fn(&mut JobSpec)| {
            let mut spec = spec();
            change(&mut spec);
            match spec.check() {
                Err(Error::Spec { reason, .. }) => reason,
                other => panic!("{other:?}"),
            }
        };
        assert!(reason(|s| s.vni = 1 << 24).contains("out of range"));
        assert!(reason(|s| s.range4 = s.range6).contains("IPv4"));
        assert!(reason(|s| s.peers[0].range4 = s.own4).contains("share addresses"));
        assert!(reason(|s| s.peers[0].range6 = s.own6).contains("share addresses"));
        assert!(reason(|s| s.peers[0].host = s.host).contains("named twice"));
        assert!(reason(|s| s.host = "::1".parse().unwrap()).contains("address family"));
        assert!(reason(|s| s.own4 = "10.8.0.0/24".parse().unwrap()).contains("is not in"));
    }
}
