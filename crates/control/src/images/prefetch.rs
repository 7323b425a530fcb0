//! Prefetch of the blocks of an image into the cache.
//!
//! The daemon of the node has the cache of blocks; this process joins it, as other platforms with
//! the same state folder do.

use std::sync::Arc;

use snowmelt_api::{FetchedBlocks, ImageEvent, WarmRequest, WarmedImage};
use snowmelt_image::profile::StartProfile;
use snowmelt_image::read::{BlobReader, BlockStore, FetchCounts};
use snowmelt_image::source::Access;
use snowmelt_image::{Error, Result};
use snowmelt_node::{ImageOrigin, ImageStores, ResolvedImage};
use snowmelt_types::ErrorReport;
use tokio::sync::mpsc::Receiver;

use super::job::ImageJob;
use super::{Images, access, short_name};

/// Number of concurrent requests.
const CONCURRENT_REQUESTS: usize = 4;
/// Number of blocks between two progress events.
const REPORT_EVERY: u64 = 64;

impl Images {
    /// Fetches the blocks of an image.
    pub fn warm(&self, request: WarmRequest, user: Option<u32>) -> Receiver<ImageEvent> {
        let images = self.clone();
        self.begin(user, move |job| {
            let access = access(request.access)?;
            let found = job.wait(images.find(&request.image, &access))?;
            let fetched = match found.origin {
                ImageOrigin::Layout(_) => None,
                ImageOrigin::Registry(_) => {
                    let fetched = prefetch(request.all, &found, &access, &images.stores, job);
                    Some(job.wait(fetched)?)
                }
            };
            let fetched = fetched.map(|counts: FetchCounts| FetchedBlocks {
                bytes: counts.fetched_bytes,
                requests: counts.requests,
                cached: counts.cached,
            });
            let name = short_name(&found.name).to_owned();
            Ok::<_, ErrorReport>(ImageEvent::Warmed(WarmedImage { name, fetched }))
        })
    }
}

/// Fetches the blocks of the start profile into the cache, or all blocks if there is no profile.
async fn prefetch(
    all: bool,
    found: &ResolvedImage,
    access: &Access,
    stores: &ImageStores,
    job: &ImageJob,
) -> Result<FetchCounts> {
    let cache = Arc::new(stores.shared_cache()?);
    let blocks = Arc::new(BlockStore::new(found.origin.source(access)?, Some(cache)));
    let reader = |blob| BlobReader::new(Arc::clone(&blocks), blob).map(Arc::new);
    let readers = found.image.blobs().cloned().map(reader).collect::<Result<Vec<_>>>()?;
    let profile = if all { None } else { start_profile(stores, found, access).await? };
    match profile {
        Some(start) => {
            job.progress(match start.blocks.len() {
                1 => "fetching 1 block".to_owned(),
                blocks => format!("fetching {blocks} blocks"),
            });
            start.prefetch(&readers, CONCURRENT_REQUESTS).await?;
        }
        None => fetch_all(&readers, job).await?,
    }
    let counts = blocks.counts();
    if counts.store_failures > 0 {
        let what = format!("{} blocks of {}", counts.store_failures, found.name);
        let reason = "the cache could not keep them: see images.cache and the free disk space";
        return Err(Error::Refused { what, reason: reason.to_owned() });
    }
    Ok(counts)
}

/// Returns the start profile recorded here, or else a trusted one in the image's registry.
async fn start_profile(
    stores: &ImageStores,
    found: &ResolvedImage,
    access: &Access,
) -> Result<Option<StartProfile>> {
    match (stores.start(&found.manifest)?, &found.origin) {
        (None, ImageOrigin::Registry(name)) => {
            stores.start_elsewhere(&name.parse()?, &found.manifest, access).await
        }
        (recorded, _) => Ok(recorded),
    }
}

async fn fetch_all(readers: &[Arc<BlobReader>], job: &ImageJob) -> Result<()> {
    let count = |reader: &BlobReader| reader.summary().block_size.count(reader.raw_size());
    let all: u64 = readers.iter().map(|reader| count(reader)).sum();
    let mut done = 0;
    for reader in readers {
        let mut next = 0;
        while next < count(reader) {
            job.progress(format!("fetching block {done} of {all}"));
            let end = count(reader).min(next + REPORT_EVERY);
            reader.prefetch(next as usize..end as usize).await?;
            done += end - next;
            next = end;
        }
    }
    Ok(())
}
