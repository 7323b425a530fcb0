//! The share of each tenant in the disk of control's host: what it has there, and its limit.
//!
//! Invariant: only what is of one tenant is counted. Installed packages, wheels and cached blocks
//! are the platform's, which bounds and removes them by itself.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use snowmelt_node::{CodeStore, TenantImages};
use snowmelt_types::{ErrorReport, Tenant};
use tokio_util::sync::CancellationToken;

use super::records::{FunctionRecord, Records};
use crate::access::quotas::{DiskPart, Quotas};

/// How long what was measured is taken as it was.
const MEASURED_FOR: Duration = Duration::from_secs(1);

/// How often what all tenants have is measured.
const MEASURED_EVERY: Duration = Duration::from_secs(60);

/// When a tenant was measured last; locked while it is measured, so that nobody decides by what was
/// before.
type MeasuredAt = Arc<tokio::sync::Mutex<Option<Instant>>>;

/// Measures what tenants have on the disk. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct TenantDisk {
    state_dir: PathBuf,
    records: Records,
    quotas: Quotas,
    measured: Arc<Mutex<HashMap<Tenant, MeasuredAt>>>,
}

impl TenantDisk {
    pub fn new(state_dir: &Path, records: &Records, quotas: &Quotas) -> Self {
        let state_dir = state_dir.to_owned();
        let records = records.clone();
        Self { state_dir, records, quotas: quotas.clone(), measured: Arc::default() }
    }

    /// Refuses what would add bytes to the disk of a tenant that has no more room there.
    ///
    /// # Errors
    /// `SM-0533`, or the records cannot be read.
    pub async fn check(&self, tenant: &Tenant, more: u64) -> Result<(), ErrorReport> {
        if !self.quotas.limits_disk(tenant) {
            return Ok(());
        }
        self.measure(tenant).await?;
        self.quotas.check_disk(tenant, more)
    }

    /// Measures what a tenant has, unless that was done just now.
    pub async fn measure(&self, tenant: &Tenant) -> Result<(), ErrorReport> {
        let of_tenant = {
            let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(measured.entry(tenant.clone()).or_default())
        };
        let mut measured = of_tenant.lock().await;
        if measured.is_some_and(|at| at.elapsed() < MEASURED_FOR) {
            return Ok(());
        }
        let functions = self.records.functions(tenant).await?;
        let mut code = self.records.udf_bytes(tenant).await?;
        code += functions.iter().map(length).sum::<u64>();
        let results = self.records.call_bytes(tenant).await;
        let folders = self.folders(tenant, functions);
        let sized = tokio::task::spawn_blocking(move || {
            folders.iter().map(|(name, all)| (*name, size_of(all))).collect::<Vec<DiskPart>>()
        });
        let mut parts = sized.await.unwrap_or_default();
        parts.extend([("code", code), ("results", results)]);
        self.quotas.has_on_disk(tenant, &parts);
        *measured = Some(Instant::now());
        Ok(())
    }

    /// Measures what all tenants have, until the server ends.
    pub async fn keep(self, over: CancellationToken) {
        loop {
            let mut tenants = self.quotas.tenants();
            let images = TenantImages::all(&self.state_dir);
            tenants.extend(images.iter().map(|images| images.tenant().clone()));
            tenants.sort();
            tenants.dedup();
            for tenant in tenants {
                if let Err(error) = self.measure(&tenant).await {
                    tracing::debug!(%tenant, %error, "what a tenant has on the disk is not known");
                }
            }
            let waited = over.run_until_cancelled(tokio::time::sleep(MEASURED_EVERY)).await;
            if waited.is_none() {
                return;
            }
        }
    }

    /// Returns the folders of a tenant, by what they have.
    fn folders(
        &self,
        tenant: &Tenant,
        functions: Vec<FunctionRecord>,
    ) -> Vec<(&'static str, Vec<PathBuf>)> {
        let of = |name: &str| self.state_dir.join(name).join(tenant.as_str());
        let images = TenantImages::new(&self.state_dir, tenant);
        let stored = |one: FunctionRecord| [one.files, CodeStore::digest(&one.spec.code)];
        let stored = functions.into_iter().flat_map(stored).flatten();
        let code = self.state_dir.join("code");
        vec![
            ("images", vec![images.layout_folder()]),
            ("raw files of images", vec![images.folder().join("raw")]),
            ("files", vec![of("files")]),
            ("logs", self.logs(tenant)),
            ("stored code", stored.map(|digest| code.join(digest.as_str())).collect()),
        ]
    }

    /// Returns the folders of logs of a tenant, each of which has a function.
    fn logs(&self, tenant: &Tenant) -> Vec<PathBuf> {
        let is_default = *tenant == Tenant::default();
        let is_own = |name: &str| match name.split_once('.') {
            Some((of, _)) => of == tenant.as_str(),
            None => is_default,
        };
        let all = ["logs", "udf-logs"].map(|name| self.state_dir.join(name));
        let entries = all.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten());
        let own = entries.flatten().filter(|one| one.file_name().to_str().is_some_and(is_own));
        own.map(|entry| entry.path()).collect()
    }
}

/// Returns the length of a record, which has the code.
fn length(record: &FunctionRecord) -> u64 {
    serde_json::to_vec(record).map_or(0, |text| text.len() as u64)
}

/// Returns the bytes that folders and all in them take. What goes away meanwhile counts as nothing.
fn size_of(folders: &[PathBuf]) -> u64 {
    let mut left: Vec<PathBuf> = folders.to_vec();
    let mut sum = 0;
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(found) if found.is_dir() => left.push(entry.path()),
                Ok(found) => sum += allocated(&found),
                Err(_) => {}
            }
        }
    }
    sum
}

/// Returns the bytes that a file takes on the disk: sparse ones take less than their length.
fn allocated(found: &fs::Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt;
    found.blocks() * 512
}
