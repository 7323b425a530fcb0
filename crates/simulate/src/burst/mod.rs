//! The simulation of one burst: an image on its way to all hosts, and the containers that start
//! there.
//!
//! | member | job |
//! |---|---|
//! | `run` | a simulation from its setting to its outcome |
//! | `placement` | containers on hosts, and the sources of the hosts |
//! | `failures` | hosts that fail at random moments |
//! | `report`, `outcome` | the results of a simulation |

mod failures;
mod outcome;
mod placement;
mod report;
mod run;

pub use outcome::{SimulationOutcome, Spread};
#[cfg(test)]
pub(crate) use run::run;
pub use run::simulate;
