//! The egress policy of a job: the destinations outside of it that its functions may reach.
//!
//! Invariant: no policy grants what is always denied.

use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Range;

/// The destinations that may be reached outside the job, with the host's source address. Limits per
/// job and host: 16,384 new connections in a burst and 1,000 per second after. Nothing by default;
/// never the host itself, another job, or the addresses at which clouds serve credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Egress(pub Vec<Allow>);

/// Destinations that may be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Allow {
    /// IPv4 addresses.
    pub to: Range,
    /// TCP and UDP port ranges, first and last; all ports if empty.
    #[serde(default)]
    pub ports: Vec<(u16, u16)>,
}

impl Egress {
    /// The reason why the policy is invalid, if it is.
    pub(crate) fn fault(&self) -> Option<String> {
        self.0.iter().find_map(|allow| {
            if !allow.to.is_ipv4() {
                return Some(format!("egress to {}: only IPv4 is supported", allow.to));
            }
            let denied = always_denied();
            let is_denied = |range: &&Range| {
                range.contains(allow.to.base()) && allow.to.prefix() >= range.prefix()
            };
            if let Some(range) = denied.iter().find(is_denied) {
                return Some(format!("egress to {}: no policy can grant {range}", allow.to));
            }
            let reversed = allow.ports.iter().find(|(first, last)| first > last)?;
            let (first, last) = reversed;
            Some(format!("egress to {}: the port range {first}-{last} is empty", allow.to))
        })
    }

    /// The destinations that are named one by one.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.0.iter().filter(|allow| allow.to.len() == 1).map(|allow| allow.to.base())
    }

    /// Whether no destination may be reached.
    pub fn is_nothing(&self) -> bool {
        self.0.is_empty()
    }
}

/// Destinations that no policy can grant: link-local addresses, where clouds serve credentials, and
/// loopback.
pub(crate) fn always_denied() -> [Range; 2] {
    [Range::v4(Ipv4Addr::new(169, 254, 0, 0), 16), Range::v4(Ipv4Addr::new(127, 0, 0, 0), 8)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_policy_can_grant_is_refused() {
        let fault =
            |to: &str| Egress(vec![Allow { to: to.parse().unwrap(), ports: vec![] }]).fault();
        for denied in ["169.254.169.254/32", "127.0.0.1/32", "127.0.0.0/8"] {
            let reason = fault(denied).unwrap();
            assert!(reason.contains("no policy can grant"), "{denied}: {reason}");
        }
        // The rest of a wider range can be granted.
        for granted in ["0.0.0.0/0", "203.0.113.7/32", "128.0.0.0/8"] {
            assert_eq!(fault(granted), None, "{granted}");
        }
    }
}
