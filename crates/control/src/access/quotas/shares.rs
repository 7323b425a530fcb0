//! Shares: how much each tenant may have of something that all tenants share.
//!
//! Invariant: a share is given back when it is dropped, in whatever way its holder ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snowmelt_types::Tenant;

/// The amounts that tenants have taken, in any unit, and the limit of each. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Shares {
    most: u64,
    taken: Arc<Mutex<HashMap<Tenant, u64>>>,
}

/// An amount that a tenant has taken, until it is dropped.
#[derive(Debug)]
pub(crate) struct TenantShare {
    of: Shares,
    tenant: Tenant,
    amount: u64,
}

impl Shares {
    /// Makes shares of which each tenant may have this much.
    pub fn new(most: u64) -> Self {
        Self { most, taken: Arc::default() }
    }

    /// Takes an amount; `None` if the tenant would then have more than it may.
    pub fn take(&self, tenant: &Tenant, amount: u64) -> Option<TenantShare> {
        let mut all = self.lock();
        let taken = all.entry(tenant.clone()).or_insert(0);
        let sum = taken.saturating_add(amount);
        if sum <= self.most {
            *taken = sum;
            return Some(TenantShare { of: self.clone(), tenant: tenant.clone(), amount });
        }
        if *taken == 0 {
            all.remove(tenant);
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Tenant, u64>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TenantShare {
    fn drop(&mut self) {
        let mut all = self.of.lock();
        if let Some(taken) = all.get_mut(&self.tenant) {
            *taken = taken.saturating_sub(self.amount);
            if *taken == 0 {
                all.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tenant_has_its_share_until_it_gives_it_back() {
        let shares = Shares::new(3);
        let (one, two): (Tenant, Tenant) = ("one".parse().unwrap(), "two".parse().unwrap());
        let held = shares.take(&one, 2).unwrap();
        assert!(shares.take(&one, 2).is_none());
        let rest = shares.take(&one, 1).unwrap();
        drop(shares.take(&two, 3).unwrap());
        assert!(shares.take(&two, 4).is_none());
        drop(held);
        assert!(shares.take(&one, 2).is_some());
        drop(rest);
        assert!(shares.lock().is_empty(), "nothing is kept of tenants that have nothing");
    }
}
