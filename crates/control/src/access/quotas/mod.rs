//! Quotas: how much each tenant may use at one time, begin within a second, and hold in a day.
//!
//! Invariants: an amount is taken under the lock of its tenant, so that of many requests for the
//! last place exactly one gets it. What is taken is given back when its guard is dropped, in
//! whatever way its holder ends. Nothing here waits for the disk or for another tenant.
//!
//! | member | owns |
//! |---|---|
//! | `usage` | who uses how much of an amount |
//! | `rooms` | instances, memory and cores of what runs, and memory over time |
//! | `rate` | what begins within a second |
//! | `tenant` | the quotas of one tenant |
//! | `guards` | amounts that are taken, until they are dropped |
//! | `query` | the tasks of a query |
//! | `shares` | how many each tenant may have of what has a fixed number of places |

mod guards;
mod query;
mod rate;
mod rooms;
mod shares;
mod tenant;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use snowmelt_api::{QuotaKind, QuotaLimit, QuotaSummary};
use snowmelt_rpc::body::CountedBodies;
use snowmelt_types::{ErrorReport, FunctionName, QueryId, Tenant};

use guards::HeldBytes;
pub(crate) use guards::{BegunCalls, BegunQuery, FunctionPlace, HeldRoom};
use query::QueryShare;
pub(crate) use rooms::{RoomAmount, RoomHolder};
pub(crate) use shares::{Shares, TenantShare};
use tenant::TenantQuotas;

/// The bytes of bodies that a tenant may have in flight unless the configuration says otherwise: as
/// many as four of the largest requests.
const DEFAULT_REQUEST_MEMORY: u64 = 1 << 30;

/// Limits by kind; a kind without one has no limit.
pub type QuotaLimits = BTreeMap<QuotaKind, u64>;

/// A part of what a tenant has on the disk: its name, and its bytes.
pub(crate) type DiskPart = (&'static str, u64);

/// Limits of one tenant, by kind; a kind that is not there has the default.
pub(crate) type OwnLimits = BTreeMap<QuotaKind, QuotaLimit>;

/// GiB-seconds of a tenant: the day, in days since 1970, and the product of bytes and milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DayUse {
    pub day: u64,
    pub byte_ms: u128,
}

/// The quotas of all tenants. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Quotas {
    tenants: Arc<RwLock<HashMap<Tenant, Arc<TenantQuotas>>>>,
    defaults: Arc<QuotaLimits>,
}

impl Quotas {
    /// Makes quotas with these defaults.
    pub fn new(mut defaults: QuotaLimits) -> Self {
        defaults.entry(QuotaKind::RequestMemory).or_insert(DEFAULT_REQUEST_MEMORY);
        // The configuration has the greatest number for no limit.
        defaults.retain(|_, limit| *limit < u64::MAX);
        Self { tenants: Arc::default(), defaults: Arc::new(defaults) }
    }

    /// Begins calls of a function: `count` of them within a second, and as many at one time as
    /// there are places, one at least.
    ///
    /// # Errors
    /// `SM-0533`, as for all that follows.
    pub fn calls(
        &self,
        tenant: &Tenant,
        function: &str,
        count: u64,
    ) -> Result<BegunCalls, ErrorReport> {
        BegunCalls::begin(self.of(tenant), function, count)
    }

    /// Counts a call that runs later, when there is a place.
    pub fn call_later(&self, tenant: &Tenant) -> Result<(), ErrorReport> {
        self.of(tenant).call_later()
    }

    /// Waits for a place for a call that was accepted before.
    pub async fn call_in_turn(&self, tenant: &Tenant, function: &str) -> BegunCalls {
        BegunCalls::in_turn(self.of(tenant), function).await
    }

    /// Begins a query.
    pub fn query(&self, tenant: &Tenant, id: &str) -> Result<BegunQuery, ErrorReport> {
        BegunQuery::begin(self.of(tenant), id)
    }

    /// Takes room for sandboxes.
    pub fn room(&self, tenant: &Tenant, holder: RoomHolder) -> Result<HeldRoom, ErrorReport> {
        HeldRoom::take(self.of(tenant), holder)
    }

    /// Counts the room of sandboxes that run already, whatever the limits are.
    pub fn runs(&self, tenant: &Tenant, holder: RoomHolder) -> HeldRoom {
        HeldRoom::of_running(self.of(tenant), holder)
    }

    /// Waits for room for sandboxes.
    ///
    /// # Errors
    /// `SM-0533` at once where the tenant may never have this much.
    pub async fn room_in_turn(
        &self,
        tenant: &Tenant,
        holder: RoomHolder,
    ) -> Result<HeldRoom, ErrorReport> {
        HeldRoom::in_turn(self.of(tenant), holder).await
    }

    /// Takes a place for the name of a function that is to be deployed. A name that is deployed has
    /// one.
    pub fn function(
        &self,
        tenant: &Tenant,
        name: &FunctionName,
    ) -> Result<FunctionPlace, ErrorReport> {
        FunctionPlace::take(self.of(tenant), name)
    }

    /// Counts the functions that are deployed already.
    pub fn has_function(&self, tenant: &Tenant, name: &FunctionName) {
        self.of(tenant).has_function(name);
    }

    /// Gives back the place of a function that was removed.
    pub fn function_is_gone(&self, tenant: &Tenant, name: &FunctionName) {
        self.of(tenant).function_is_gone(name);
    }

    /// Returns a function that begins to count a body of a request.
    pub fn bodies(&self, tenant: &Tenant) -> CountedBodies {
        let of = self.of(tenant);
        CountedBodies(Arc::new(move || Box::new(HeldBytes::none(Arc::clone(&of)))))
    }

    /// Returns the share of a query, which is empty until it begins.
    pub fn query_share(&self, tenant: &Tenant, id: &QueryId) -> QueryShare {
        QueryShare::new(self.of(tenant), id)
    }

    /// Notes what a tenant has on the disk, part by part.
    pub fn has_on_disk(&self, tenant: &Tenant, parts: &[DiskPart]) {
        self.of(tenant).has_on_disk(parts);
    }

    /// Returns whether a tenant has a limit on the disk.
    pub fn limits_disk(&self, tenant: &Tenant) -> bool {
        self.of(tenant).limits_disk()
    }

    /// Refuses what adds bytes to the disk of a tenant beyond its limit, by what was noted last.
    pub fn check_disk(&self, tenant: &Tenant, more: u64) -> Result<(), ErrorReport> {
        self.of(tenant).check_disk(more)
    }

    /// Sets the limits of a tenant.
    pub fn set(&self, tenant: &Tenant, own: &OwnLimits) {
        self.of(tenant).set(&self.defaults, own);
    }

    /// Sets the GiB-seconds that a tenant had before the server was started.
    pub fn had(&self, tenant: &Tenant, had: DayUse) {
        self.of(tenant).had(had);
    }

    /// Returns the GiB-seconds of each tenant that has some.
    pub fn days(&self) -> Vec<(Tenant, DayUse)> {
        let all = self.tenants.read().unwrap_or_else(PoisonError::into_inner);
        let days = all.iter().map(|(tenant, quotas)| (tenant.clone(), quotas.day()));
        days.filter(|(_, day)| day.byte_ms > 0).collect()
    }

    /// Returns what a tenant uses, with its limits.
    pub fn summary(&self, tenant: &Tenant) -> QuotaSummary {
        self.of(tenant).summary()
    }

    /// Returns the tenants that are known, in order.
    pub fn tenants(&self) -> Vec<Tenant> {
        let all = self.tenants.read().unwrap_or_else(PoisonError::into_inner);
        let mut names: Vec<_> = all.keys().cloned().collect();
        names.sort();
        names
    }

    fn of(&self, tenant: &Tenant) -> Arc<TenantQuotas> {
        let known = self.tenants.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(tenant) {
            return Arc::clone(known);
        }
        drop(known);
        let mut all = self.tenants.write().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(TenantQuotas::new(tenant.clone(), &self.defaults));
        Arc::clone(all.entry(tenant.clone()).or_insert_with(new))
    }
}

impl Default for Quotas {
    fn default() -> Self {
        Self::new(QuotaLimits::new())
    }
}

/// Returns the whole seconds of a time, rounded up, and one at least.
fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0 || time.is_zero())
}
