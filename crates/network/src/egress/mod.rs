//! What functions of a job may reach outside it: nothing, but for what the policy names.
//!
//! A packet on its way out is filtered and gets the address of the job's end of its pair in the
//! job's own namespace, which its functions cannot change; on the host it gets the host's address.
//! So two jobs with the same addresses are never in each other's way.

mod host;
mod job;
mod table;

use serde::{Deserialize, Serialize};

use crate::Range;

pub(crate) use host::{Gate, Pair};
pub(crate) use job::{grant, rules};

/// What may be reached outside the job, through the host's address, by at most 16,384 new connections
/// of a job and host at once and 1,000 a second after. Nothing by default; never the
/// host itself, another job, or the addresses at which clouds give out credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Egress(pub Vec<Allow>);

/// Destinations that may be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allow {
    /// IPv4 addresses.
    pub to: Range,
    /// TCP and UDP ports, first and last of each group; all if there are none.
    #[serde(default)]
    pub ports: Vec<(u16, u16)>,
}

impl Egress {
    /// What is wrong with it, if anything.
    pub(crate) fn fault(&self) -> Option<String> {
        self.0.iter().find_map(|allow| {
            if !allow.to.is_ipv4() {
                return Some(format!("egress to {}: only IPv4 leaves a job", allow.to));
            }
            let reversed = allow.ports.iter().find(|(first, last)| first > last)?;
            Some(format!("egress to {}: no port is in {}-{}", allow.to, reversed.0, reversed.1))
        })
    }

    /// Whether nothing may be reached.
    pub fn is_nothing(&self) -> bool {
        self.0.is_empty()
    }
}
