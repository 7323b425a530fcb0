//! Files of functions: they arrive before the code that names them, and go when no version of a
//! function has them any more.
//!
//! A function that is being registered holds its files, so that the removal of another one leaves
//! them. Files of functions that are not registered go a day after their last use, and
//! so do those of deployed functions that were removed. Code goes a week after its last use.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt;
use snowmelt_api::{FilesRequest, MAX_FILES, MissingFiles};
use snowmelt_node::{CODE_KEPT, CodeStore, FileStore, Receiving, UNUSED_KEPT};
use snowmelt_types::{Code, Digest, ErrorReport, Report, Tenant};
use tokio_util::sync::CancellationToken;

use super::UdfRegistry;

/// The interval at which files are tried again that had to stay because an instance saw them.
const TRIED_EVERY: Duration = Duration::from_secs(10);

/// The interval at which files that were not used for long are looked for.
const SWEPT_EVERY: Duration = Duration::from_secs(3600);

/// How long a body is read on after it was refused.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// The most contents in one request, enough for many functions.
const MAX_ASKED: usize = 64 * MAX_FILES;

impl UdfRegistry {
    fn files(&self) -> &FileStore {
        self.catalog.host.node().files()
    }

    /// Returns the contents that a tenant has to send.
    pub async fn missing_files(
        &self,
        tenant: &Tenant,
        asked: FilesRequest,
    ) -> Result<MissingFiles, ErrorReport> {
        if asked.digests.len() > MAX_ASKED {
            let message = format!("a request names at most {MAX_ASKED} files");
            return Err(ErrorReport::new(Code::FUNCTION_FILE, message));
        }
        let files = self.files().clone();
        let tenant = tenant.clone();
        let missing = blocking(move || Ok(files.missing(&tenant, &asked.digests))).await?;
        Ok(MissingFiles { missing })
    }

    /// Keeps a content while it arrives.
    pub async fn keep_file(
        &self,
        tenant: &Tenant,
        digest: &str,
        mut body: Body,
    ) -> Result<(), ErrorReport> {
        let kept = self.received(tenant, digest, &mut body).await;
        if kept.is_err() {
            // A client that still sends would not get the answer.
            let rest = async { while let Some(Ok(_)) = body.frame().await {} };
            let _ = tokio::time::timeout(DRAIN_TIMEOUT, rest).await;
        }
        kept
    }

    async fn received(
        &self,
        tenant: &Tenant,
        digest: &str,
        body: &mut Body,
    ) -> Result<(), ErrorReport> {
        let mut receiving = self.files().receive(tenant, digest).map_err(|error| error.report())?;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                let message = format!("a file did not arrive as a whole: {error}");
                ErrorReport::new(Code::FUNCTION_FILE, message)
            })?;
            let Ok(piece) = frame.into_data() else { continue };
            receiving = blocking(move || {
                receiving.write(&piece).map_err(|error| error.report())?;
                Ok(receiving)
            })
            .await?;
        }
        let finish = |receiving: Receiving| receiving.finish().map_err(|error| error.report());
        blocking(move || finish(receiving)).await
    }

    /// Returns the contents that the functions of a tenant have; none if the tenant never sent any.
    pub(super) async fn referred(&self, tenant: &Tenant) -> Result<BTreeSet<String>, ErrorReport> {
        if !self.files().has_any(tenant) {
            return Ok(BTreeSet::new());
        }
        let udfs = self.records.udfs(tenant).await?.into_iter().flat_map(|entry| entry.files);
        let functions = self.records.functions(tenant).await?;
        let functions = functions.into_iter().flat_map(|function| function.spec.files);
        Ok(udfs.chain(functions).map(|(_, file)| file.digest).collect())
    }

    /// Removes the contents that the functions of a tenant had before, and have not now.
    pub(super) async fn free(
        &self,
        tenant: &Tenant,
        before: &BTreeSet<String>,
    ) -> Result<(), ErrorReport> {
        if before.is_empty() {
            return Ok(());
        }
        let now = self.referred(tenant).await?;
        let gone: BTreeSet<String> = before.difference(&now).cloned().collect();
        if !gone.is_empty() {
            self.release(tenant, gone).await?;
        }
        Ok(())
    }

    async fn release(&self, tenant: &Tenant, gone: BTreeSet<String>) -> Result<(), ErrorReport> {
        let files = self.files().clone();
        let of = tenant.clone();
        let left =
            blocking(move || files.release(&of, &gone).map_err(|error| error.report())).await?;
        self.pending.add(tenant, left);
        Ok(())
    }

    /// Removes files that no function has, until the server ends.
    pub async fn collect_files(self, over: CancellationToken) {
        let mut last_sweep = None;
        while !over.is_cancelled() {
            let is_due =
                last_sweep.is_none_or(|last: tokio::time::Instant| last.elapsed() >= SWEPT_EVERY);
            if is_due {
                last_sweep = Some(tokio::time::Instant::now());
                if let Err(error) = self.sweep().await {
                    tracing::warn!(error = error.message, "old files are not removed");
                }
            }
            tokio::select! {
                () = over.cancelled() => return,
                () = tokio::time::sleep(TRIED_EVERY) => {}
            }
            if let Err(error) = self.try_pending().await {
                tracing::warn!(error = error.message, "files of functions are not removed");
            }
        }
    }

    async fn try_pending(&self) -> Result<(), ErrorReport> {
        let mut tried = Ok(());
        for (tenant, digests) in self.pending.take() {
            // One of them may belong to a new version.
            if let Err(error) = self.free(&tenant, &digests).await {
                self.pending.add(&tenant, digests);
                tried = Err(error);
            }
        }
        tried
    }

    /// Returns the code of deployed functions, which are prepared once and not with each call.
    async fn deployed_code(&self) -> Result<BTreeSet<Digest>, ErrorReport> {
        let all = self.records.all_functions().await?.into_iter();
        Ok(all.flat_map(|one| [one.files, CodeStore::digest(&one.spec.code)]).flatten().collect())
    }

    /// Returns the contents of files that functions have, by tenant.
    pub async fn used_files(&self) -> Result<BTreeSet<(Tenant, String)>, ErrorReport> {
        let mut used = self.records.udf_files().await?;
        used.extend(self.records.function_files().await?);
        Ok(used)
    }

    async fn sweep(&self) -> Result<(), ErrorReport> {
        let used = self.used_files().await?;
        let node = self.catalog.host.node().clone();
        let deployed = self.deployed_code().await?;
        let sweep = move || {
            node.files().sweep(&used, UNUSED_KEPT)?;
            node.preparation().codes().sweep(&deployed, CODE_KEPT, false)?;
            node.sweep_shared_files()
        };
        blocking(move || sweep().map_err(|error| error.report())).await
    }
}

/// Runs work that waits for the disk, away from the threads that serve connections.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ErrorReport> + Send + 'static,
) -> Result<T, ErrorReport> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(ErrorReport::new(Code::INTERNAL, error.to_string())))
}
