//! Figures of a ledger.

use crate::{Amount, Capacity, Use};

/// The capacity of a host, the amounts that are reserved now, and counts of how requests for room
/// ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoomFigures {
    /// The capacity of the host.
    pub capacity: Capacity,
    /// The sum of all reservations.
    pub reserved: Amount,
    /// The reservations by use; uses without a reservation are left out.
    pub uses: Vec<(Use, Amount)>,
    /// The number of requests that wait now.
    pub waiting: u64,
    /// The number of requests that were refused: above the capacity, or at their deadline.
    pub refused: u64,
    /// The number of requests that were granted after they had waited.
    pub waited: u64,
}
