//! The resources of the host: who has reserved them, what is idle, and their figures.
//!
//! | part | file |
//! |---|---|
//! | reservations, and what is ended to make room | `account` |
//! | idle sandboxes by key, within a budget of memory | `pool` |
//! | leases that are out | `count` |
//! | memory and processor time, from the kernel | `machine` |
//! | reservations and durations of starts as figures | `figures` |
//!
//! Boundary: what a sandbox runs is not known here. Invariant: a reservation ends with its owner.

pub(crate) mod account;
pub(crate) mod count;
pub(crate) mod figures;
pub(crate) mod machine;
pub(crate) mod pool;
