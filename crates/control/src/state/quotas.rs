//! The quotas of tenants in the store: limits of their own, and the GiB-seconds of a day.
//!
//! Invariants: a limit is in the store before it takes effect. GiB-seconds are written every few
//! seconds and at the end: those of the last seconds before a crash are not counted.

use std::sync::Arc;
use std::time::Duration;

use snowmelt_api::{QuotaLimit, QuotaRequest, QuotaSummary};
use snowmelt_types::{Code, ErrorReport, Tenant};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::records::Records;
use crate::access::identity::Identity;
use crate::access::quotas::{DayUse, OwnLimits, Quotas};

/// How often GiB-seconds are written.
const WRITTEN_EVERY: Duration = Duration::from_secs(5);

/// Quotas that are kept. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct StoredQuotas {
    quotas: Quotas,
    records: Records,
    /// Locked while the store and the limits in force are changed, so that they stay equal.
    changes: Arc<Mutex<()>>,
}

impl StoredQuotas {
    /// Reads what is known of the quotas of a platform. One that lives for a command enforces the
    /// defaults, and changes what is stored.
    pub async fn open(quotas: Quotas, records: Records) -> Result<Self, ErrorReport> {
        if records.is_held() {
            for (tenant, own) in records.quotas().await? {
                quotas.set(&tenant, &own);
            }
            for (tenant, had) in records.quota_days().await? {
                quotas.had(&tenant, had);
            }
            for function in records.all_functions().await? {
                let id = function.id();
                quotas.has_function(&id.tenant, &id.name);
            }
        }
        Ok(Self { quotas, records, changes: Arc::default() })
    }

    /// Returns the quotas in force.
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Returns what the tenant of a request uses; for an operator who names none, what all use.
    pub async fn list(&self, identity: &Identity) -> Result<Vec<QuotaSummary>, ErrorReport> {
        self.refresh().await?;
        let tenants = match identity.only() {
            Some(tenant) => vec![tenant.clone()],
            None => self.quotas.tenants(),
        };
        Ok(tenants.iter().map(|tenant| self.quotas.summary(tenant)).collect())
    }

    /// Sets limits of a tenant.
    pub async fn set(
        &self,
        tenant: &Tenant,
        request: QuotaRequest,
    ) -> Result<QuotaSummary, ErrorReport> {
        let named = tenant.clone();
        self.change(async move |stored| {
            let mut own = stored.records.quota(&named).await?.unwrap_or_default();
            own.extend(request.limits);
            own.retain(|_, limit| *limit != QuotaLimit::Default);
            stored.records.put_quota(&named, &own).await?;
            stored.quotas.set(&named, &own);
            Ok(())
        })
        .await?;
        Ok(self.quotas.summary(tenant))
    }

    /// Gives a tenant the defaults again.
    pub async fn reset(&self, tenant: &Tenant) -> Result<(), ErrorReport> {
        let named = tenant.clone();
        self.change(async move |stored| {
            stored.records.remove_quota(&named).await?;
            stored.quotas.set(&named, &OwnLimits::new());
            Ok(())
        })
        .await
    }

    /// Writes GiB-seconds, until the server ends.
    pub async fn keep(self, over: CancellationToken) {
        let mut stored = Vec::new();
        loop {
            let ends = over.run_until_cancelled(tokio::time::sleep(WRITTEN_EVERY)).await.is_none();
            let days = self.quotas.days();
            let is_new = |day: &&(Tenant, DayUse)| !stored.contains(*day);
            let changed: Vec<_> = days.iter().filter(is_new).cloned().collect();
            match self.records.put_quota_days(&changed).await {
                Ok(()) => stored = days,
                Err(error) => tracing::warn!(%error, "GiB-seconds of tenants are not written"),
            }
            if ends {
                return;
            }
        }
    }

    /// Reads the limits again where other processes may have written them.
    async fn refresh(&self) -> Result<(), ErrorReport> {
        if !self.records.is_held() {
            for (tenant, own) in self.records.quotas().await? {
                self.quotas.set(&tenant, &own);
            }
        }
        Ok(())
    }

    /// Runs a change in a task of its own, which a client that is gone does not break off between
    /// the store and the limits in force.
    async fn change<F>(
        &self,
        work: impl FnOnce(Self) -> F + Send + 'static,
    ) -> Result<(), ErrorReport>
    where
        F: Future<Output = Result<(), ErrorReport>> + Send + 'static,
    {
        let stored = self.clone();
        let changes = Arc::clone(&self.changes).lock_owned().await;
        let changing = tokio::spawn(async move {
            let _changes = changes;
            work(stored).await
        });
        changing.await.unwrap_or_else(|error| {
            Err(ErrorReport::new(Code::INTERNAL, format!("a change of quotas failed: {error}")))
        })
    }
}
