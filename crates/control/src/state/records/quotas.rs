//! Quotas of tenants: limits of their own, and what each has held in a day.

use snowmelt_store::{Expect, Transaction};
use snowmelt_types::{Code, ErrorReport, Report, Tenant};

use super::{PAGE, Records, collect, parse, written};
use crate::access::quotas::{DayUse, OwnLimits};

/// The prefix of the keys of limits.
const LIMITS: &str = "quotas/";

/// The prefix of the keys of days.
const DAYS: &str = "quota-days/";

/// The most records that are written at once.
const MAX_WRITTEN: usize = 64;

impl Records {
    /// Returns the limits of a tenant's own.
    pub async fn quota(&self, tenant: &Tenant) -> Result<Option<OwnLimits>, ErrorReport> {
        self.get(&format!("{LIMITS}{tenant}")).await
    }

    /// Returns the limits of all tenants that have their own.
    pub async fn quotas(&self) -> Result<Vec<(Tenant, OwnLimits)>, ErrorReport> {
        let of = |entry: &_| Ok((tenant(entry, LIMITS)?, parse(entry)?));
        collect(&*self.store, LIMITS, PAGE, of).await
    }

    /// Writes the limits of a tenant's own.
    pub async fn put_quota(&self, tenant: &Tenant, own: &OwnLimits) -> Result<(), ErrorReport> {
        let key = format!("{LIMITS}{tenant}");
        let put = self.store.put(&key, written(own)?.into(), Expect::Any).await;
        put.map(drop).map_err(|error| error.report())
    }

    /// Removes the limits of a tenant's own.
    pub async fn remove_quota(&self, tenant: &Tenant) -> Result<(), ErrorReport> {
        let removed = self.store.delete(&format!("{LIMITS}{tenant}"), Expect::Any).await;
        removed.map(drop).map_err(|error| error.report())
    }

    /// Returns what tenants have held, each in the last day in which it held something.
    pub async fn quota_days(&self) -> Result<Vec<(Tenant, DayUse)>, ErrorReport> {
        let of = |entry: &_| Ok((tenant(entry, DAYS)?, parse(entry)?));
        collect(&*self.store, DAYS, PAGE, of).await
    }

    /// Writes what tenants have held.
    pub async fn put_quota_days(&self, days: &[(Tenant, DayUse)]) -> Result<(), ErrorReport> {
        for some in days.chunks(MAX_WRITTEN) {
            let mut all = Transaction::new();
            for (tenant, day) in some {
                all = all.put(format!("{DAYS}{tenant}"), written(day)?, Expect::Any);
            }
            self.store.transaction(all).await.map_err(|error| error.report())?;
        }
        Ok(())
    }
}

fn tenant(entry: &snowmelt_store::StoreEntry, prefix: &str) -> Result<Tenant, ErrorReport> {
    let name = entry.key.strip_prefix(prefix).unwrap_or_default();
    name.parse().map_err(|_| {
        ErrorReport::new(Code::STATE, format!("the record `{}` is of no tenant", entry.key))
    })
}
