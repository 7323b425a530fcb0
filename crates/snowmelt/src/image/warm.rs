//! `image warm`.

use std::sync::Arc;

use snowmelt_image::profile::StartProfile;
use snowmelt_image::read::{BlobReader, Blocks, Counts};
use snowmelt_image::{Error, Result};
use snowmelt_node::{Found, ImageOrigin, ImageStores};
use snowmelt_types::ByteSize;

use super::{familiar, stores, work};
use crate::args::ImageWarmArgs;
use crate::config::Config;
use crate::failure::Outcome;
use crate::printer::Printer;
use crate::progress::Progress;
use crate::text;

/// Requests under way.
const AT_ONCE: usize = 4;
/// Blocks between two words of how far it is.
const SAID_EACH: u64 = 64;

pub(super) fn warm(args: &ImageWarmArgs, config: &Config, printer: Printer) -> Outcome {
    let label = format!("looking for {}", args.image);
    let (found, counts) = work(config, printer, &label, async |progress| {
        let found = snowmelt_node::find_image(&config.state.value, &args.image).await?;
        let counts = match found.origin {
            ImageOrigin::Layout(_) => None,
            ImageOrigin::Registry(_) => Some(fetched(args.all, &found, config, progress).await?),
        };
        Ok((found, counts))
    })?;
    let name = familiar(&found.name);
    printer.note(&match counts {
        None => format!("the blocks of {name} are on this machine"),
        Some(counts) => format!(
            "{name}: {} fetched by {}, {} here already",
            ByteSize(counts.fetched_bytes),
            text::counted(counts.requests, "request"),
            text::counted(counts.cached, "block")
        ),
    });
    Ok(0)
}

/// Has the blocks of a start in the cache if one is known, and all of them otherwise.
async fn fetched(
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
    let known = if all { None } else { known(&stores, found).await? };
    match known {
        Some(start) => {
            progress
                .doing(format!("fetching {}", text::counted(start.blocks.len() as u64, "block")));
            start.prefetch(&readers, AT_ONCE).await?;
        }
        None => whole(&readers, progress).await?,
    }
    let counts = blocks.counts();
    if counts.store_failures > 0 {
        let what = format!("{} of {}", text::counted(counts.store_failures, "block"), found.name);
        let reason = "the cache could not keep them: see images.cache and the room on the disk";
        return Err(Error::Refused { what, reason: reason.to_owned() });
    }
    Ok(counts)
}

/// Starts that were seen here, or else those that somebody trusted put beside the image.
async fn known(stores: &ImageStores, found: &Found) -> Result<Option<StartProfile>> {
    match (stores.start(&found.manifest)?, &found.origin) {
        (None, ImageOrigin::Registry(name)) => {
            stores.start_elsewhere(&name.parse()?, &found.manifest).await
        }
        (known, _) => Ok(known),
    }
}

async fn whole(readers: &[Arc<BlobReader>], progress: &Arc<Progress>) -> Result<()> {
    let count = |reader: &BlobReader| reader.summary().block_size.count(reader.raw_size());
    let all: u64 = readers.iter().map(|reader| count(reader)).sum();
    let mut done = 0;
    for reader in readers {
        let mut next = 0;
        while next < count(reader) {
            progress.doing(format!("fetching block {} of {}", text::count(done), text::count(all)));
            let end = count(reader).min(next + SAID_EACH);
            reader.prefetch(next as usize..end as usize).await?;
            done += end - next;
            next = end;
        }
    }
    Ok(())
}
