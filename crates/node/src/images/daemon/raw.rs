//! The conversion of complete images that are in use into raw files, in the background.
//!
//! Invariant: no start waits for the conversion, and a conversion that fails changes nothing: the
//! image stays mounted as it is.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;

use snowmelt_image::Result;
use snowmelt_image::block::OciDigest;
use snowmelt_image::read::{BlobReader, LockedFiles};
use tokio::runtime::{Builder, Runtime};

use super::mounts::{MountSlot, Mounts};
use crate::images::locked;
use crate::images::message::ImageSpec;
use crate::images::resolution::ImageOrigin;
use crate::times::{RAW_FILES_AFTER, RAW_FILES_INTERVAL};

/// The nice value of the thread that makes raw files: it only uses processor time that is idle
/// otherwise.
const NICE: i32 = 19;

/// Makes raw files of images and mounts them, as long as the process lives; `report` is called with
/// each image that is mounted so.
pub(super) fn make(mounts: &Mounts, report: impl Fn(&OciDigest)) {
    let _ = rustix::process::nice(NICE);
    // The runtime is of this thread alone, so that its work is as nice.
    let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return };
    let mut refused = HashSet::new();
    loop {
        thread::sleep(RAW_FILES_INTERVAL);
        for slot in mounts.all() {
            let Some((spec, readers)) = next(&slot) else { continue };
            if refused.contains(&spec.digest) {
                continue;
            }
            match one(mounts, &slot, &spec, &readers, &runtime) {
                // No room, or another node writes there.
                Ok(false) => {}
                Ok(true) => report(&spec.digest),
                Err(error) => {
                    tracing::warn!(image = %spec.digest, %error, "an image has no raw files");
                    refused.insert(spec.digest);
                }
            }
        }
    }
}

type BlobReaders = Vec<Arc<BlobReader>>;

/// Returns the image of a slot and its readers if it can become raw files now: it is complete on
/// this machine, and its first start is over for some time.
fn next(slot: &MountSlot) -> Option<(ImageSpec, BlobReaders)> {
    let slot = locked(slot);
    let mount = slot.as_ref()?;
    let readers = mount.to_be_raw()?;
    let is_settled = mount.started.is_some_and(|started| started.elapsed() >= RAW_FILES_AFTER);
    let is_here = || match mount.spec.origin {
        ImageOrigin::Layout(_) => true,
        ImageOrigin::Registry(_) => readers.iter().all(|reader| reader.is_on_disk()),
    };
    (is_settled && is_here()).then(|| (mount.spec.clone(), readers))
}

fn one(
    mounts: &Mounts,
    slot: &MountSlot,
    spec: &ImageSpec,
    readers: &BlobReaders,
    runtime: &Runtime,
) -> Result<bool> {
    let Some(files) = files(mounts, spec, readers, runtime)? else { return Ok(false) };
    let mut slot = locked(slot);
    slot.as_mut().map_or(Ok(false), |mount| mounts.replace(mount, files).map(|()| true))
}

fn files(
    mounts: &Mounts,
    spec: &ImageSpec,
    readers: &BlobReaders,
    runtime: &Runtime,
) -> Result<Option<LockedFiles>> {
    match mounts.raw(spec) {
        Some(raw) => runtime.block_on(raw.make(&spec.image()?, readers)),
        None => Ok(None),
    }
}
