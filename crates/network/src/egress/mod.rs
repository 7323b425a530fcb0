//! Egress: which destinations outside a job its functions may reach. The default is none.
//!
//! An outgoing packet is filtered in the job's own namespace, whose rules functions cannot change,
//! and gets the address of the job's end of its pair there; on the host it gets the host's address.
//! So two jobs with the same addresses do not conflict.

mod host;
mod job;
mod table;

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
    /// The reason why it is invalid, if it is.
    pub(crate) fn fault(&self) -> Option<String> {
        self.0.iter().find_map(|allow| {
            if !allow.to.is_ipv4() {
                return Some(format!("egress to {}: only IPv4 is supported", allow.to));
            }
            let reversed = allow.ports.iter().find(|(first, last)| first > last)?;
            let (first, last) = reversed;
            Some(format!("egress to {}: the port range {first}-{last} is empty", allow.to))
        })
    }

    /// Whether no destination may be reached.
    pub fn is_nothing(&self) -> bool {
        self.0.is_empty()
    }
}
