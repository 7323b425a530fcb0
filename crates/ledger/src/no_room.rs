//! Why a request was refused: what it asked for, what there is, and what is taken by whom.

use std::fmt;

use snowmelt_types::Tenant;

use crate::{Amount, Ask, Capacity, Use};

/// A request that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// What was asked for.
    pub ask: Ask,
    /// What the host has.
    pub capacity: Capacity,
    /// What is taken, the largest first.
    pub taken: Vec<Taken>,
}

/// What one tenant has taken for one use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Who.
    pub tenant: Tenant,
    /// For what.
    pub use_: Use,
    /// How much.
    pub amount: Amount,
}

impl NoRoom {
    /// True for a request that the whole host could not hold.
    pub fn is_too_large(&self) -> bool {
        !self.capacity.holds(self.ask.amount)
    }
}

/// A user reads it: other tenants are a sum, because their use of the host is their own.
impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ask { tenant, use_, amount } = &self.ask;
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
