//! The platform as one tenant sees it: its own work, and nothing of the work of others.
//!
//! Invariant: a number in such a view is counted by tenant, or is zero. Operators see the whole.

use std::collections::BTreeSet;

use snowmelt_api::{
    CallFigures, Figures, ImportFigures, NodeFigures, PoolStatus, QuotaKind, QuotaUse,
    SpawnerHealth, Status, ZygoteFigures,
};
use snowmelt_types::{ErrorReport, Tenant};

use super::GatewayPlatform;
use super::trees::{trees_of_function, trees_of_udf};
use crate::access::identity::Identity;
use crate::reports::SUCCEEDED;

impl GatewayPlatform {
    /// Returns the status as a request may see it.
    ///
    /// # Errors
    /// The records cannot be read.
    pub async fn status_for(&self, identity: &Identity) -> Result<Status, ErrorReport> {
        let all = self.status().await;
        if identity.is_operator() {
            return Ok(all);
        }
        let node = self.own_node(identity);
        let functions = self.functions.records().functions(&identity.tenant).await?;
        let functions = functions.iter().filter(|one| identity.permits(one.spec.name.as_str()));
        let pool = PoolStatus { least: 0, most: 0, provided: 0, lacking: 0, ..all.pool };
        let socket = if identity.is_remote() { String::new() } else { all.socket };
        Ok(Status {
            memory_bytes: 0,
            queries: self.own_queries(identity),
            workers: [0, 0],
            instances: [node.busy, 0],
            zygotes: short(node.imports.zygotes.len() as u64),
            functions: short(functions.count() as u64),
            pool: PoolStatus { is_elastic: false, failure: None, retry_ms: None, ..pool },
            store: String::new(),
            spawner: SpawnerHealth::default(),
            pid: if identity.is_remote() { 0 } else { all.pid },
            socket,
            ..all
        })
    }

    /// Returns the counters of the platform as a request may see them.
    pub fn figures_for(&self, identity: &Identity) -> Figures {
        if identity.is_operator() {
            return self.figures();
        }
        let ended = self.functions.durations().read(Some(&identity.tenant));
        let ended = ended.iter().filter(|(series, _)| identity.permits(&series.function));
        let mut calls = CallFigures { running: self.own_calls(identity), ..Default::default() };
        for (series, times) in ended {
            let count: u64 = times.buckets.iter().sum();
            match series.outcome {
                SUCCEEDED => calls.succeeded += count,
                _ => calls.failed += count,
            }
        }
        let queries = self.own_queries(identity);
        Figures { queries, calls, node: self.own_node(identity), ..Figures::default() }
    }

    /// Returns those of `all` trees that a request may see: for others than operators those of the
    /// deployed functions and registered UDFs of its tenant.
    ///
    /// # Errors
    /// The records cannot be read.
    pub async fn trees_for(
        &self,
        identity: &Identity,
        mut all: Vec<String>,
    ) -> Result<Vec<String>, ErrorReport> {
        if identity.is_operator() {
            return Ok(all);
        }
        let tenant = &identity.tenant;
        let records = self.functions.records();
        let mut own = BTreeSet::new();
        for record in records.functions(tenant).await? {
            if identity.permits(record.spec.name.as_str()) {
                own.extend(trees_of_function(&record));
            }
        }
        for udf in records.udfs(tenant).await? {
            if identity.permits_udf(&udf.signature.name) {
                own.extend(trees_of_udf(udf.image.as_ref(), &udf.files));
            }
        }
        all.retain(|tree| own.contains(tree));
        Ok(all)
    }

    /// Returns the part of this host's node that is of the tenant: instances that work for it, and
    /// zygotes.
    fn own_node(&self, identity: &Identity) -> NodeFigures {
        // Instances and zygotes have no name of a function.
        if identity.is_limited() {
            return NodeFigures::default();
        }
        let tenant = &identity.tenant;
        let is_own = |zygote: &ZygoteFigures| zygote.tenant == tenant.as_str();
        let mut zygotes = self.node.figures().imports.zygotes;
        zygotes.retain(is_own);
        let bytes = zygotes.iter().map(|zygote| zygote.bytes).sum();
        let imports = ImportFigures { zygotes, bytes, ..ImportFigures::default() };
        let busy = short(self.quota(tenant, QuotaKind::Instances).map_or(0, |quota| quota.used));
        NodeFigures { busy, imports, ..NodeFigures::default() }
    }

    fn own_queries(&self, identity: &Identity) -> u32 {
        if identity.is_limited() {
            return 0;
        }
        short(self.quota(&identity.tenant, QuotaKind::Queries).map_or(0, |quota| quota.used))
    }

    fn own_calls(&self, identity: &Identity) -> u64 {
        let Some(calls) = self.quota(&identity.tenant, QuotaKind::Calls) else { return 0 };
        if !identity.is_limited() {
            return calls.used;
        }
        let of =
            |name: &str| name.strip_prefix("function ").is_some_and(|one| identity.permits(one));
        calls.by.iter().filter(|holder| of(&holder.name)).map(|holder| holder.used).sum()
    }

    fn quota(&self, tenant: &Tenant, kind: QuotaKind) -> Option<QuotaUse> {
        let summary = self.quotas.quotas().summary(tenant);
        summary.quotas.into_iter().find(|quota| quota.kind == kind)
    }
}

fn short(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
