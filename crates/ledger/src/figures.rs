//! Figures of a ledger.

use crate::{Amount, Capacity, Use};

/// What a host has, what is reserved of it now, and how requests for room ended so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figures {
    /// What there is.
    pub capacity: Capacity,
    /// All reservations.
    pub reserved: Amount,
    /// The same by use; uses without a reservation are left out.
    pub uses: Vec<(Use, Amount)>,
    /// Requests that wait now.
    pub waiting: u64,
    /// Requests that were refused: above the capacity, or at their deadline.
    pub refused: u64,
    /// Requests that were granted after they had waited.
    pub waited: u64,
}
