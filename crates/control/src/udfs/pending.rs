//! Contents of files that no function has any more, and that an instance still sees.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snowmelt_types::Tenant;

/// Digests by tenant. Cheap to clone. After a restart nothing sees them, and they are old.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending(Arc<Mutex<BTreeMap<Tenant, BTreeSet<String>>>>);

impl Pending {
    /// Adds some of a tenant.
    pub fn add(&self, tenant: &Tenant, digests: BTreeSet<String>) {
        if !digests.is_empty() {
            self.lock().entry(tenant.clone()).or_default().extend(digests);
        }
    }

    /// Takes all.
    pub fn take(&self) -> BTreeMap<Tenant, BTreeSet<String>> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Tenant, BTreeSet<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
