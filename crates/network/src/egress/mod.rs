//! Egress: the destinations outside a job that its functions may reach. The default is none.
//!
//! An outgoing packet is filtered in the job's own namespace, whose rules functions cannot change,
//! and gets the address of the job's end of its pair there; on the host it gets the host's address.
//! So two jobs with the same addresses do not conflict.

mod host;
mod job;
mod table;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Range;

pub(crate) use host::{Gate, Pair};
pub(crate) use job::{grant, rules};

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
            let denied = host::always_denied();
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

/// The reason why a job may not reach an address of its host.
pub(crate) fn to_host(address: IpAddr) -> String {
    format!(
        "egress to {address}: it is an address of the host itself, which no policy can grant; what \
         functions need has to run on another host, or in a function of the job"
    )
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
