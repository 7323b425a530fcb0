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

pub use kind::Kind;
pub use plan::{MAX_HOSTS, Plan, PoolPlan, ServicePlan};
pub use rate::{BitRate, Link, ParseRateError};
