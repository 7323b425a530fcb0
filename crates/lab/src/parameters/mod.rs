//! The parameters of a lab.
//!
//! | part | file |
//! |---|---|
//! | hosts, services and pool of a lab | `plan` |
//! | kinds of services | `kind` |
//! | rate and delay of a link | `rate` |

mod kind;
mod plan;
mod rate;

pub use kind::ServiceKind;
pub use plan::{LabPlan, MAX_HOSTS, PoolPlan, ServicePlan};
pub use rate::{BitRate, LabLink, ParseRateError};
