//! The profile of a query, from the records of its tasks.
//!
//! | member | owns |
//! |---|---|
//! | `lanes`, `stage_profiles` | a timeline for each sandbox, a profile for each stage |
//! | `findings`, `skew` | possible improvements, each with its evidence |

pub(crate) mod findings;
pub(crate) mod lanes;
mod skew;
mod stage_profiles;

pub(crate) use stage_profiles::stage_profiles;
