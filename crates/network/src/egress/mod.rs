//! What functions of a job may reach outside it: nothing, but for what the policy names.

use serde::{Deserialize, Serialize};

use crate::Range;

/// What may be reached outside the job, through the host's address. Nothing by default; never the
/// host itself, another job, or the address at which clouds give out credentials.
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
