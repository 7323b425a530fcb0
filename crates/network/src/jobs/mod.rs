//! The networks of jobs on this host, from creation to removal.
//!
//! | part | file |
//! |---|---|
//! | all networks of a node | `networks` |
//! | the network of one job | `job` |
//! | the state that all networks share | `state` |
//! | leases of overlays and addresses, in files that outlive the node | `lease` |

mod job;
mod lease;
mod networks;
mod state;

pub use job::{AddressEnforcement, JobNetwork};
pub use lease::Lease;
pub use networks::{Networks, Options, PORT};
