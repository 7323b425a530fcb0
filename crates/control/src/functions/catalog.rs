//! Reads the deployed functions, and the logs of their invocations.

use snowmelt_api::{FunctionSummary, LogEntry};
use snowmelt_types::{Code, Digest, ErrorReport, InvocationId, Tenant};

use super::Functions;
use crate::state::records::{FunctionId, FunctionRecord};

impl Functions {
    /// Returns every deployed function of a tenant, by name.
    pub async fn list(&self, tenant: &Tenant) -> Result<Vec<FunctionSummary>, ErrorReport> {
        let records = self.records().functions(tenant).await?;
        Ok(records.iter().map(|record| self.summary(record)).collect())
    }

    /// Returns how many functions are deployed, of all tenants.
    pub async fn count(&self) -> u32 {
        let all = self.records().all_functions().await.map_or(0, |functions| functions.len());
        u32::try_from(all).unwrap_or(u32::MAX)
    }

    /// Returns a deployed function.
    pub async fn show(&self, id: &FunctionId) -> Result<FunctionSummary, ErrorReport> {
        match self.records().function(id).await? {
            Some(record) => Ok(self.summary(&record)),
            None => Err(self.missing(id).await),
        }
    }

    /// Returns a deployed function as it was accepted.
    pub async fn record(&self, id: &FunctionId) -> Result<FunctionRecord, ErrorReport> {
        if let Some(live) = self.live().get(id) {
            return Ok(live.record.clone());
        }
        match self.records().function(id).await? {
            Some(record) => Ok(record),
            None => Err(self.missing(id).await),
        }
    }

    pub(super) fn summary(&self, record: &FunctionRecord) -> FunctionSummary {
        let spec = &record.spec;
        let code = || Digest::of(serde_json::to_vec(&spec.code).unwrap_or_default());
        let package = || record.packed.as_ref().map(|at| Digest::of(at.manifest.as_str()));
        let version = record.files.clone().or_else(package).unwrap_or_else(code);
        let live = self.live().get(&record.id()).cloned();
        let instances = live.map_or(0, |live| {
            live.calls().div_ceil(live.limits.concurrency as usize)
                + self.inner.node.idle_instances(&live.unit, &live.limits)
                + self.placements().idle_elsewhere(&live.needs) as usize
        });
        FunctionSummary {
            name: spec.name.clone(),
            handler: spec.handler.clone(),
            runtime: spec.runtime,
            command: spec.command.clone(),
            root: spec.root.clone(),
            image: spec.image.clone(),
            packed: spec.packed.clone(),
            tenant: record.tenant.clone(),
            packages: spec.packages.clone(),
            secrets: spec.secrets.clone(),
            options: spec.options.clone(),
            deployed_ms: record.deployed_ms,
            instances: u32::try_from(instances).unwrap_or(u32::MAX),
            version: version.short().to_owned(),
        }
    }

    pub(super) async fn missing(&self, FunctionId { tenant, name }: &FunctionId) -> ErrorReport {
        let known = self.list(tenant).await.unwrap_or_default();
        let names = known.iter().map(|function| function.name.as_str());
        let nearest = snowmelt_types::nearest(name.as_str(), names);
        let hint = nearest.map_or_else(
            || "`snowmelt fn ls` lists what is deployed".to_owned(),
            |nearest| format!("did you mean `{nearest}`?"),
        );
        ErrorReport::new(Code::FUNCTION_MISSING, format!("there is no function `{name}`"))
            .hint(hint)
    }

    /// Returns the output of a function's invocations: of one invocation, or the last `tail`
    /// entries.
    pub async fn logs(
        &self,
        id: &FunctionId,
        invocation: Option<InvocationId>,
        tail: Option<u32>,
    ) -> Result<Vec<LogEntry>, ErrorReport> {
        let is_live = self.live().contains_key(id);
        if !is_live && self.records().function(id).await?.is_none() {
            return Err(self.missing(id).await);
        }
        let id = id.clone();
        self.blocking(move |inner| inner.logs.read(&id, invocation.as_ref(), tail)).await
    }
}
