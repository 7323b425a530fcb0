//! The refusal of a request: what it asked for, the capacity, and the amounts that are taken by
//! each tenant.

use std::fmt;

use snowmelt_types::Tenant;

use crate::{Amount, Capacity, RoomRequest, Use};

/// A request that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// The refused request.
    pub ask: RoomRequest,
    /// The capacity of the host.
    pub capacity: Capacity,
    /// The taken amounts, the largest first.
    pub taken: Vec<TakenAmount>,
}

/// The amount that one tenant has taken for one use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenAmount {
    /// The tenant.
    pub tenant: Tenant,
    /// The use.
    pub use_: Use,
    /// The amount.
    pub amount: Amount,
}

impl NoRoom {
    /// True for a request that the whole host could not hold.
    pub fn is_too_large(&self) -> bool {
        !self.capacity.holds(self.ask.amount)
    }
}

/// The message for a user: other tenants are shown as a sum, because their use of the host is their
/// own business.
impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RoomRequest { tenant, use_, amount } = &self.ask;
        let Capacity { memory, instances, .. } = self.capacity;
        write!(f, "{use_} needs {amount}; this host has {memory} for {instances} sandboxes")?;
        if self.is_too_large() {
            return Ok(());
        }
        let (own, others): (Vec<_>, Vec<_>) =
            self.taken.iter().partition(|taken| taken.tenant == *tenant);
        let mut lines: Vec<String> = own
            .iter()
            .map(|taken| format!("{} of `{tenant}` have {}", taken.use_.plural(), taken.amount))
            .collect();
        if !others.is_empty() {
            let sum = others.iter().fold(Amount::default(), |sum, taken| sum + taken.amount);
            lines.push(format!("others have {sum}"));
        }
        if !lines.is_empty() {
            write!(f, ": {}", lines.join(", "))?;
        }
        Ok(())
    }
}

impl std::error::Error for NoRoom {}
