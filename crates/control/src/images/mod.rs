//! The block images of a tenant: names, conversions, transfers and clean-up.
//!
//! | part | file |
//! |---|---|
//! | the service, names, clean-up | here |
//! | long work: its events, and its end when the client goes away | `job` |
//! | an image that the client sends | `upload` |
//! | conversions, pulls, pushes | `transfer` |
//! | prefetch of blocks into the cache | `prefetch` |
//! | details, verification, comparison | `inspection` |
//! | images of versions that had one folder for all tenants | `division` |
//!
//! Boundary: images are stored and read by `snowmelt_image`; the node mounts them. Invariant: no
//! path of a request is opened, and no credentials of this process are used for a request. No image
//! of another tenant is found.

mod division;
mod inspection;
mod job;
mod prefetch;
mod transfer;
mod upload;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use snowmelt_api::{ImageSummary, PruneRequest, Pruned, RegistryAccess};
use snowmelt_image::source::{
    Access, Authorities, Credentials, ImageLocation, OciLayout, Reference,
};
use snowmelt_image::{Error, Image, exchange};
use snowmelt_node::{
    ImageSettings, ImageStores, PackageAt, ResolvedImage, TenantImages, find_image,
};
use snowmelt_types::{Code, ErrorReport, Report, Tenant};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::access::quotas::{self, Shares};
use crate::state::backups;
use crate::state::disk::TenantDisk;
use crate::state::records::Records;
use crate::times::SWEPT_AGAIN_AFTER;

pub use inspection::{compare, detail, verify};
pub(crate) use upload::Incoming;

/// The most long work on images at the same time. More of it waits.
const JOBS_AT_ONCE: u32 = 8;

/// The most long work that a tenant has by way of other hosts at the same time.
const MAX_REMOTE_JOBS: u64 = 2;

/// How long cancelled work may take to remove its partial files. The next command removes any that
/// it leaves.
pub(crate) const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The images of a tenant, at first of `default`. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Images {
    state_dir: PathBuf,
    stores: ImageStores,
    running: Arc<Semaphore>,
    /// The places of tenants on other hosts for long work.
    remote: Shares,
    /// Cancelled to end all work.
    over: CancellationToken,
    /// The records of deployed functions, where the platform holds them open.
    records: Option<Records>,
    /// The shares of tenants in the disk, where the platform has quotas.
    disk: Option<TenantDisk>,
}

/// A place for long work of a client on another host, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place(
    #[expect(dead_code, reason = "held until it is dropped")] quotas::TenantShare,
);

/// The share of a tenant in the disk.
#[derive(Debug)]
struct TenantShare {
    disk: TenantDisk,
    tenant: Tenant,
}

impl Images {
    /// Makes the service, and opens nothing yet. Work ends when `over` is cancelled.
    pub fn new(state_dir: &Path, settings: ImageSettings, over: CancellationToken) -> Self {
        let running = Arc::new(Semaphore::new(JOBS_AT_ONCE as usize));
        let stores = ImageStores::new(state_dir, settings);
        let remote = Shares::new(MAX_REMOTE_JOBS);
        let state_dir = state_dir.to_owned();
        Self { state_dir, stores, running, remote, over, records: None, disk: None }
    }

    /// Returns the service for a tenant.
    pub fn of(&self, tenant: &Tenant) -> Self {
        Self { stores: self.stores.of(tenant), ..self.clone() }
    }

    /// Returns the services of all tenants that have a folder of images.
    pub fn of_all_tenants(&self) -> Vec<Self> {
        TenantImages::all(&self.state_dir).iter().map(|one| self.of(one.tenant())).collect()
    }

    /// Returns the service for a platform with these records of deployed functions, and shares of
    /// tenants in the disk.
    pub fn beside(self, records: &Records, disk: &TenantDisk) -> Self {
        Self { records: Some(records.clone()), disk: Some(disk.clone()), ..self }
    }

    /// Takes a place for long work of a client on another host, which holds pieces of what is sent in
    /// memory.
    ///
    /// # Errors
    /// `SM-0514` if the tenant has as many as it may.
    pub fn place_of_remote(&self) -> Result<Place, ErrorReport> {
        let tenant = self.stores.images().tenant();
        self.remote.take(tenant, 1).map(Place).ok_or_else(|| {
            let message = format!(
                "tenant `{tenant}` has {MAX_REMOTE_JOBS} conversions by other hosts, which are the most"
            );
            ErrorReport::new(Code::NO_ROOM, message).hint("try again when one has ended")
        })
    }

    fn share(&self) -> Option<TenantShare> {
        let tenant = self.stores.images().tenant().clone();
        self.disk.clone().map(|disk| TenantShare { disk, tenant })
    }

    /// Returns the code packages of deployed functions. Their names may lead to other packages now.
    pub async fn deployed_packages(&self) -> Result<Vec<PackageAt>, ErrorReport> {
        let functions = match &self.records {
            Some(records) => records.all_functions().await?,
            None => {
                let state = backups::state(&self.state_dir);
                Records::open(state, false).await?.all_functions().await?
            }
        };
        Ok(functions.into_iter().filter_map(|function| function.packed).collect())
    }

    /// Removes files that killed writers left; in the background while other writers are active. A
    /// server that was killed just now is a writer until the kernel has ended it.
    pub fn sweep(&self) {
        if self.is_swept() {
            return;
        }
        let images = self.clone();
        tokio::spawn(images.over.clone().run_until_cancelled_owned(async move {
            while !images.is_swept() {
                tokio::time::sleep(SWEPT_AGAIN_AFTER).await;
            }
        }));
    }

    /// Returns whether nothing is left to remove, or cannot be removed.
    fn is_swept(&self) -> bool {
        let is_clean = |images: TenantImages| {
            let Ok(layout) = OciLayout::open(&images.layout_folder()) else { return true };
            snowmelt_image::sweep(&layout).unwrap_or_else(|error| {
                tracing::warn!(%error, "files of interrupted conversions are not removed");
                true
            })
        };
        // Each of them, also after one that is not.
        TenantImages::all(&self.state_dir)
            .into_iter()
            .map(is_clean)
            .fold(true, |all, one| all & one)
    }

    /// Waits until all work has removed its partial files.
    pub async fn idle(&self, within: Duration) {
        let _ = tokio::time::timeout(within, self.running.acquire_many(JOBS_AT_ONCE)).await;
    }

    /// Returns all local images of the tenant, by name.
    pub fn list(&self) -> Result<Vec<ImageSummary>, ErrorReport> {
        let layout = self.layout()?;
        let named = layout.list().map_err(reported)?;
        let mut images = named
            .into_iter()
            .map(|(name, manifest)| {
                let image = exchange::read(&layout, &manifest)?;
                Ok(summary(short_name(&name.unwrap_or_default()), manifest.digest.as_str(), &image))
            })
            .collect::<Result<Vec<_>, Error>>()
            .map_err(reported)?;
        images.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(images)
    }

    /// Returns the key with which others verify start profiles of this platform.
    pub fn key(&self) -> Result<String, ErrorReport> {
        self.stores.key().map(|key| key.to_string()).map_err(reported)
    }

    /// Removes the name of an image.
    pub fn remove(&self, name: &str) -> Result<(), ErrorReport> {
        let name = reference(name)?;
        self.layout()?.untag(&name.to_string()).map_err(reported)
    }

    /// Removes data that no local image and none of these packages refers to.
    pub fn prune(
        &self,
        request: &PruneRequest,
        packages: &[PackageAt],
    ) -> Result<Pruned, ErrorReport> {
        let layout = self.layout()?;
        // One that is in a registry is not here.
        let pin = |package: &PackageAt| layout.pin(&package.manifest).ok();
        let _pinned: Vec<_> = packages.iter().filter_map(pin).collect();
        let collected = snowmelt_image::collect(&layout, request.dry_run).map_err(reported)?;
        let raw = self.stores.raw().prune(request.dry_run).map_err(reported)?;
        let blocks = request.blocks.then(|| self.prune_blocks(request.dry_run));
        Ok(Pruned {
            blobs: collected.blobs,
            bytes: collected.bytes,
            raw_files: raw.blobs,
            raw_bytes: raw.bytes,
            block_bytes: blocks.transpose()?,
        })
    }

    /// Removes the cached blocks of images in registries; returns their bytes.
    pub fn prune_blocks(&self, dry: bool) -> Result<u64, ErrorReport> {
        // The lock of the cache guarantees that no mounted image needs its blocks.
        let cache = self.stores.cache().map_err(reported)?;
        let bytes = cache.bytes();
        if !dry {
            cache.empty();
        }
        Ok(bytes)
    }

    /// Finds the image of the tenant, or of a registry, that a request names.
    pub async fn find(&self, name: &str, access: &Access) -> Result<ResolvedImage, ErrorReport> {
        if name.parse::<ImageLocation>().map_err(reported)?.is_path() {
            let message = format!("the image `{name}` is a path, which only its user may open");
            let hint = "name an image of the platform or of a registry";
            return Err(ErrorReport::new(Code::IMAGE_REFUSED, message).hint(hint));
        }
        find_image(self.stores.images(), name, access).await.map_err(reported)
    }

    /// Opens the folder of local images, which is created if it does not exist.
    fn layout(&self) -> Result<OciLayout, ErrorReport> {
        OciLayout::create(&self.stores.images().layout_folder()).map_err(reported)
    }
}

/// Makes the access of a client to registries from its request.
pub(crate) fn access(given: RegistryAccess) -> Result<Access, ErrorReport> {
    let authorities = given.authorities.map(|pem| {
        Authorities::parse(pem.as_bytes(), "the text of trusted certificates").map_err(reported)
    });
    let logins = given
        .logins
        .into_iter()
        .map(|login| (login.registry, Credentials { user: login.user, secret: login.secret }));
    Ok(Access::given(logins, authorities.transpose()?.unwrap_or_default()))
}

fn reference(name: &str) -> Result<Reference, ErrorReport> {
    name.parse().map_err(reported)
}

fn reported(error: Error) -> ErrorReport {
    error.report()
}

/// Returns a name without the prefix `docker.io/library/`, which names without a registry get.
fn short_name(name: &str) -> &str {
    let short = name.strip_prefix("docker.io/").unwrap_or(name);
    short.strip_prefix("library/").unwrap_or(short)
}

fn summary(name: &str, manifest: &str, image: &Image) -> ImageSummary {
    let (bytes, raw_bytes) = sizes(image);
    ImageSummary {
        name: name.to_owned(),
        manifest: manifest.to_owned(),
        bytes,
        raw_bytes,
        layers: image.layers.len(),
        block_size: image.metadata.block_size.bytes() as u64,
        original: image.original.as_ref().map(|original| original.digest.to_string()),
    }
}

/// Returns the stored and the uncompressed bytes of an image.
fn sizes(image: &Image) -> (u64, u64) {
    image.blobs().fold((0, 0), |(bytes, raw), blob| (bytes + blob.size, raw + blob.raw_size))
}

#[cfg(test)]
mod tests;
