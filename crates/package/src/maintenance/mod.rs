//! The content of the store over time: its size, its repeated verification, its removal.
//!
//! | member | job |
//! |---|---|
//! | `inventory` | packages and environments with times of last use |
//! | `verification` | comparison of the files with the packages' RECORDs, on demand |
//! | `reclamation` | removal in the order of last use, down to a size |
//! | `pruning` | removal of what nothing uses, whatever the size |
//!
//! Invariant: nothing in use is removed.

pub(crate) mod inventory;
pub(crate) mod pruning;
pub(crate) mod reclamation;
pub(crate) mod verification;

pub use pruning::EnvironmentLease;
pub use reclamation::Reclaimed;
pub use verification::Damaged;
