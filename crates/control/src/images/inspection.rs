//! Details, verification and comparison of images. The command line uses these too, for images in
//! layout folders of its user.

use snowmelt_api::{
    DamagedBlock, DifferenceRequest, ImageBlob, ImageDetail, ImageDifference, ImageEvent,
    ImagePlace, ImageRequest, PartAmount, PathChange, SharedParts, VerifiedImage,
};
use snowmelt_image::block::BlobSummary;
use snowmelt_image::diff::{EntryChange, Readable, Shares, StoredAmount, diff};
use snowmelt_image::source::Access;
use snowmelt_image::verify_image;
use snowmelt_node::{ImageOrigin, ResolvedImage};
use snowmelt_types::ErrorReport;
use tokio::sync::mpsc::Receiver;

use super::{Images, access, reported, short_name};

impl Images {
    /// Returns an image with all its details.
    pub async fn detail(&self, request: ImageRequest) -> Result<ImageDetail, ErrorReport> {
        let access = access(request.access)?;
        detail(&self.find(&request.image, &access).await?, &access).await
    }

    /// Compares every block of an image with its digest.
    pub fn verify(&self, request: ImageRequest, user: Option<u32>) -> Receiver<ImageEvent> {
        let images = self.clone();
        self.begin(user, move |job| {
            let access = access(request.access)?;
            let found = job.wait(images.find(&request.image, &access))?;
            job.wait(verify(&found, &access)).map(ImageEvent::Verified)
        })
    }

    /// Compares two images.
    pub fn compare(&self, request: DifferenceRequest, user: Option<u32>) -> Receiver<ImageEvent> {
        let images = self.clone();
        self.begin(user, move |job| {
            let access = access(request.access)?;
            let first = job.wait(images.find(&request.first, &access))?;
            let second = job.wait(images.find(&request.second, &access))?;
            job.wait(compare(&first, &second, &access)).map(ImageEvent::Compared)
        })
    }
}

/// Returns an image with all its details.
///
/// # Errors
/// `SM-1001` to `SM-1004` for a configuration that is refused, damaged or cannot be fetched.
pub async fn detail(found: &ResolvedImage, access: &Access) -> Result<ImageDetail, ErrorReport> {
    let config = found.config(access).await.map_err(reported)?;
    let part = |index: usize| match index {
        0 => "metadata".to_owned(),
        layer => format!("layer {layer}"),
    };
    let blobs = found.image.blobs().enumerate().map(|(index, it)| blob(part(index), it));
    Ok(ImageDetail {
        name: short_name(&found.name).to_owned(),
        manifest: found.manifest.to_string(),
        origin: match &found.origin {
            ImageOrigin::Layout(folder) => ImagePlace::Layout(folder.display().to_string()),
            ImageOrigin::Registry(name) => ImagePlace::Registry(name.clone()),
        },
        original: found.image.original.as_ref().map(|original| original.digest.to_string()),
        blobs: blobs.collect(),
        config: serde_json::from_slice(&config).unwrap_or_default(),
    })
}

fn blob(part: String, blob: &BlobSummary) -> ImageBlob {
    let block_size = blob.block_size.bytes() as u64;
    ImageBlob {
        part,
        digest: blob.digest.to_string(),
        root: blob.root.to_string(),
        bytes: blob.size,
        raw_bytes: blob.raw_size,
        blocks: blob.raw_size.div_ceil(block_size),
        block_size,
    }
}

/// Compares every block of an image with its digest.
///
/// # Errors
/// `SM-1003` and `SM-1004` for blobs that are missing or cannot be fetched.
pub async fn verify(found: &ResolvedImage, access: &Access) -> Result<VerifiedImage, ErrorReport> {
    // The manifest and the configuration are compared with their digests while they are read.
    found.config(access).await.map_err(reported)?;
    let source = found.origin.source(access).map_err(reported)?;
    let verified = verify_image(&found.image, &source).await.map_err(reported)?;
    let damages = verified.damages.into_iter().map(|damage| DamagedBlock {
        blob: damage.blob.to_string(),
        block: damage.block,
        reason: damage.reason,
    });
    Ok(VerifiedImage {
        name: short_name(&found.name).to_owned(),
        blocks: verified.blocks,
        bytes: verified.bytes,
        damages: damages.collect(),
    })
}

/// Compares two images.
///
/// # Errors
/// `SM-1002` to `SM-1004` for blobs that are damaged, missing or cannot be fetched.
pub async fn compare(
    first: &ResolvedImage,
    second: &ResolvedImage,
    access: &Access,
) -> Result<ImageDifference, ErrorReport> {
    let open = |found: &ResolvedImage| Readable::new(&found.image, found.origin.source(access)?);
    let first = open(first).map_err(reported)?;
    let second = open(second).map_err(reported)?;
    let found = diff(&first, &second).await.map_err(reported)?;
    let changes = found.changes.into_iter().map(|(path, change)| (path, kind(change)));
    Ok(ImageDifference {
        blobs: shared(&found.blobs),
        blocks: shared(&found.blocks),
        same: found.same,
        changes: changes.collect(),
    })
}

fn kind(change: EntryChange) -> PathChange {
    match change {
        EntryChange::Added => PathChange::Added,
        EntryChange::Removed => PathChange::Removed,
        EntryChange::Attributes => PathChange::Attributes,
        EntryChange::Content => PathChange::Content,
    }
}

fn shared(shares: &Shares) -> SharedParts {
    let of = |amount: &StoredAmount| PartAmount { count: amount.count, bytes: amount.bytes };
    SharedParts { both: of(&shares.both), first: of(&shares.first), second: of(&shares.second) }
}
