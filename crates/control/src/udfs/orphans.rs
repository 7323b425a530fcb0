//! Contents of files that no function has any more, and that an instance still sees.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snowmelt_types::Tenant;

/// The digests of such contents, by tenant. Cheap to clone. After a restart no instance sees them,
/// and they are old files like others.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending(Arc<Mutex<BTreeMap<Tenant, BTreeSet<String>>>>);

impl Pending {
    /// Adds digests of a tenant.
    pub fn add(&self, tenant: &Tenant, digests: BTreeSet<String>) {
        if !digests.is_empty() {
            self.lock().entry(tenant.clone()).or_default().extend(digests);
        }
    }

    /// Takes all digests.
    pub fn take(&self) -> BTreeMap<Tenant, BTreeSet<String>> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Tenant, BTreeSet<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
