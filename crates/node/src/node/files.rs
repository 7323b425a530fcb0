//! The files and secrets that a function has besides its code and packages.

use std::collections::BTreeMap;
use std::future::ready;

use futures::{FutureExt, Stream, StreamExt, TryStreamExt, stream};
use snowmelt_api::FileRefs;
use snowmelt_image::block::BlobSummary;
use snowmelt_types::{ErrorReport, Report, Tenant};

use crate::files::shared_files::SharedFile;
use crate::{Error, FileStore, Node, Result, Secrets, Unit};

/// How many files are read from other hosts at once: several MiB of each are in memory.
const AT_ONCE: usize = 8;

impl Node {
    /// Returns the store of the files of functions that clients have sent.
    pub fn files(&self) -> &FileStore {
        &self.inner.preparation.files
    }

    /// Makes a unit whose instances see files that clients have sent, and have these secrets.
    pub async fn give(&self, unit: Unit, files: &FileRefs, secrets: Secrets) -> Result<Unit> {
        self.give_of(self.files(), unit, files, secrets).await
    }

    /// Makes a unit whose instances see files that control, on another host, has sent, and have
    /// these secrets.
    pub async fn give_received(
        &self,
        unit: Unit,
        files: &FileRefs,
        secrets: Secrets,
    ) -> Result<Unit> {
        self.give_of(&self.inner.preparation.received, unit, files, secrets).await
    }

    /// Lets other hosts read a file that a client has sent, and says how they verify it.
    ///
    /// # Errors
    /// The tenant has not sent it.
    pub async fn share_file(&self, tenant: &Tenant, digest: &str) -> Result<BlobSummary> {
        self.inner.shared_files.offer(self.files(), tenant, digest).await
    }

    /// Removes the blobs of files that no other host has read for `UNUSED_KEPT`.
    pub fn sweep_shared_files(&self) -> Result<()> {
        self.inner.shared_files.sweep()
    }

    /// Reads files of a tenant from other hosts, unless this host has them. The first failure ends
    /// it.
    pub async fn fetch_files(&self, tenant: &Tenant, files: &[SharedFile]) -> Result<()> {
        self.fetching(tenant, files).map(|(_, fetched)| fetched).try_collect().await
    }

    /// Reads files of a tenant from other hosts, unless this host has them, for functions that
    /// differ in their files. Returns the digests of the files that cannot be read, and why.
    pub async fn fetch_each(
        &self,
        tenant: &Tenant,
        files: &[SharedFile],
    ) -> BTreeMap<String, ErrorReport> {
        let fetching = self.fetching(tenant, files);
        let failed = fetching.filter_map(|(file, fetched)| {
            ready(fetched.err().map(|error| (file.digest.clone(), error.report())))
        });
        failed.collect().await
    }

    fn fetching<'f>(
        &'f self,
        tenant: &'f Tenant,
        files: &'f [SharedFile],
    ) -> impl Stream<Item = (&'f SharedFile, Result<()>)> {
        let store = &self.inner.preparation.received;
        let shared = &self.inner.shared_files;
        let fetch = move |file| async move { (file, shared.fetch(store, tenant, file).await) };
        stream::iter(files.iter().map(move |file| fetch(file).boxed())).buffer_unordered(AT_ONCE)
    }

    /// Makes a unit whose instances have these secrets, and see files: on control's own host those
    /// that clients have sent, on other hosts those that control has sent.
    pub async fn give_here(&self, unit: Unit, files: &FileRefs, secrets: Secrets) -> Result<Unit> {
        let cluster = self.inner.images.cluster();
        match cluster.and_then(|cluster| cluster.control.as_ref()) {
            Some(_) => self.give_received(unit, files, secrets).await,
            None => self.give(unit, files, secrets).await,
        }
    }

    async fn give_of(
        &self,
        store: &FileStore,
        unit: Unit,
        files: &FileRefs,
        secrets: Secrets,
    ) -> Result<Unit> {
        if files.is_empty() {
            return Ok(unit.with(None, secrets));
        }
        let store = store.clone();
        let tenant = unit.tenant.clone();
        let files = files.clone();
        let made = tokio::task::spawn_blocking(move || store.tree(&tenant, &files)).await;
        let failed = |error| Error::State {
            path: self.inner.preparation.state_dir.clone(),
            source: std::io::Error::other(error),
        };
        Ok(unit.with(Some(made.map_err(failed)??), secrets))
    }
}
