//! How faults of members begin and end.
//!
//! | part | file |
//! |---|---|
//! | which faults there are | `members/fault_kinds.rs` |
//! | faults on demand, and their healing | `injection` |
//! | another wall clock | `clock` |
//! | damage to packets | `corruption` |

mod clock;
mod corruption;
mod injection;

pub(crate) use injection::partition_new_hosts;
