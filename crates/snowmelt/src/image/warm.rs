//! `image warm`.

use std::sync::Arc;

use snowmelt_image::profile::StartProfile;
use snowmelt_image::read::{BlobReader, Blocks, Counts};
use snowmelt_image::{Error, Result};
use snowmelt_node::{Found, ImageOrigin, ImageStores};
use snowmelt_types::ByteSize;

use super::{short_name, stores, work};
use crate::args::ImageWarmArgs;
use crate::config::Config;
use crate::failure::Outcome;
use crate::printer::Printer;
use crate::progress::Progress;
use crate::text;

/// Number of concurrent requests.
const CONCURRENT_REQUESTS: usize = 4;
/// Number of blocks between two progress updates.
const REPORT_EVERY: u64 = 64;

pub(super) fn warm(args: &ImageWarmArgs, config: &Config, printer: Printer) -> Outcome {
    let label = format!("looking for {}", args.image);
    let (found, counts) = work(config, printer, &label, async |progress| {
        let found = snowmelt_node::find_image(&config.state.value, &args.image).await?;
        let counts = match found.origin {
            ImageOrigin::Layout(_) => None,
            ImageOrigin::Registry(_) => Some(prefetch(args.all, &found, config, progress).await?),
        };
        Ok((found, counts))
    })?;
    let name = short_name(&found.name);
    printer.note(&match counts {
        None => format!("the blocks of {name} are already on this machine"),
        Some(counts) => format!(
            "{name}: {} fetched by {}, {} already here",
            ByteSize(counts.fetched_bytes),
            text::counted(counts.requests, "request"),
            text::counted(counts.cached, "block")
        ),
    });
    Ok(0)
}

/// Fetches the blocks of the start profile into the cache, or all blocks if there is none.
async fn prefetch(
    all: bool,
    found: &Found,
    config: &Config,
    progress: &Arc<Progress>,
) -> Result<Counts> {
    let stores = stores(config);
    let blocks = Blocks::new(found.origin.source()?, Some(Arc::new(stores.shared_cache()?)));
    let blocks = Arc::new(blocks);
    let reader = |blob| BlobReader::new(Arc::clone(&blocks), blob).map(Arc::new);
    let readers = found.image.blobs().cloned().map(reader).collect::<Result<Vec<_>>>()?;
    let profile = if all { None } else { start_profile(&stores, found).await? };
    match profile {
        Some(start) => {
            progress.set_label(format!(
                "fetching {}",
                text::counted(start.blocks.len() as u64, "block")
            ));
            start.prefetch(&readers, CONCURRENT_REQUESTS).await?;
        }
        None => fetch_all(&readers, progress).await?,
    }
    let counts = blocks.counts();
    if counts.store_failures > 0 {
        let what = format!("{} of {}", text::counted(counts.store_failures, "block"), found.name);
        let reason = "the cache could not keep them: see images.cache and the free disk space";
        return Err(Error::Refused { what, reason: reason.to_owned() });
    }
    Ok(counts)
}

/// The start profile recorded here, or else a trusted one in the image's registry.
async fn start_profile(stores: &ImageStores, found: &Found) -> Result<Option<StartProfile>> {
    match (stores.start(&found.manifest)?, &found.origin) {
        (None, ImageOrigin::Registry(name)) => {
            stores.start_elsewhere(&name.parse()?, &found.manifest).await
        }
        (recorded, _) => Ok(recorded),
    }
}

async fn fetch_all(readers: &[Arc<BlobReader>], progress: &Arc<Progress>) -> Result<()> {
    let count = |reader: &BlobReader| reader.summary().block_size.count(reader.raw_size());
    let all: u64 = readers.iter().map(|reader| count(reader)).sum();
    let mut done = 0;
    for reader in readers {
        let mut next = 0;
        while next < count(reader) {
            progress.set_label(format!(
                "fetching block {} of {}",
                text::count(done),
                text::count(all)
            ));
            let end = count(reader).min(next + REPORT_EVERY);
            reader.prefetch(next as usize..end as usize).await?;
            done += end - next;
            next = end;
        }
    }
    Ok(())
}
