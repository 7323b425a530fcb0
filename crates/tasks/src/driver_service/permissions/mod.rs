//! The requests that one driver may make.
//!
//! | member | job |
//! |---|---|
//! | `quotations` | quoted texts of the SQL that may be tables |
//! | `locations` | the locations that a query names |
//! | `allowance` | how often each request may be made |
//! | `scope` | all of these for one driver, and the files that it may open |

mod allowance;
mod locations;
mod quotations;
mod scope;

pub(super) use allowance::Allowance;
pub(super) use locations::Locations;
pub(super) use scope::{DriverScope, refused};
