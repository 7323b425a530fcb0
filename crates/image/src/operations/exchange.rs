//! Copies block images between registries and layout folders, and between these.
//!
//! Invariant: a blob is complete and its SHA-256 is compared before it gets its name. The manifest
//! is uploaded last, so a client that can read it can read everything it references.

use std::fs;
use std::io::{self, Write};

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::block::OciDigest;
use crate::manifest::{Descriptor, OCI_MANIFEST};
use crate::read::{BlockSource, Retried, RetryPolicy};
use crate::source::{Access, OciLayout, Reference, Registry};
use crate::{Error, Image, Lock, Result};

/// Stored bytes per request.
const REQUEST_BYTES: u64 = 8 << 20;
/// Blobs that are requested or uploaded concurrently: most exist already, and each check takes a
/// round trip.
const CONCURRENT_BLOBS: usize = 4;

/// Progress callback: the blob's number from 1, the number of blobs, and bytes so far.
pub type ExchangeProgress<'a> = &'a (dyn Fn(usize, usize, u64) + Sync);

/// The result of an upload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UploadCounts {
    /// Blobs that the registry did not have.
    pub blobs: Vec<OciDigest>,
    /// Stored bytes of the blobs that the registry did not have.
    pub bytes: u64,
}

/// An image that was fetched. It has no name yet ([`OciLayout::tag`]); garbage collection is
/// blocked while this value lives.
#[derive(Debug)]
pub struct Pulled {
    /// The image.
    pub image: Image,
    /// The descriptor of the image's manifest in the layout.
    pub manifest: Descriptor,
    /// Blocks garbage collection until the image can be named.
    _lease: Lock,
}

/// Finds a block image in a registry; returns it with its manifest's descriptor.
pub async fn find(registry: &Registry, name: &Reference) -> Result<(Descriptor, Image)> {
    let (manifest, bytes) = registry.manifest(name.selector()).await?;
    Ok((manifest, Image::decode(&bytes)?))
}

/// Reads a block image of a layout folder, given the descriptor of its manifest.
pub fn read(layout: &OciLayout, manifest: &Descriptor) -> Result<Image> {
    Image::decode(&layout.read_blob(manifest)?)
}

/// Uploads an image with all of its blobs; blobs that exist are skipped. A tag that names an image
/// of another kind is not overwritten.
pub async fn push(
    layout: &OciLayout,
    image: &Image,
    name: &Reference,
    access: &Access,
    progress: ExchangeProgress<'_>,
) -> Result<UploadCounts> {
    let registry = access.registry(name)?;
    match registry.manifest(name.selector()).await {
        Ok((_, bytes)) if Image::decode(&bytes).is_err() => {
            let reason = "an image that is not a block image has that name: push to another tag";
            return Err(Error::refused(format!("the image {name}"), reason));
        }
        // The registry client has retried already.
        Err(error) if error.is_transient() => return Err(error),
        _ => {}
    }
    let blobs = parts(image);
    let one = async |(digest, size): &(OciDigest, u64)| {
        let is_new = registry.push_blob(digest, &layout.blob_path(digest)).await?;
        Ok::<_, Error>((digest.clone(), *size, is_new))
    };
    let mut sending = stream::iter(blobs.iter().map(one)).buffered(CONCURRENT_BLOBS);
    let mut sent = UploadCounts::default();
    let mut done = 0;
    let mut bytes = 0;
    loop {
        progress((done + 1).min(blobs.len()), blobs.len(), bytes);
        let Some((digest, size, is_new)) = sending.try_next().await? else { break };
        (done, bytes) = (done + 1, bytes + size);
        if is_new {
            sent.bytes += size;
            sent.blobs.push(digest);
        }
    }
    let manifest = Bytes::from(image.encode()?);
    registry.push_manifest(name.selector(), OCI_MANIFEST, manifest).await?;
    Ok(sent)
}

/// Fetches an image with all of its blobs into a layout folder.
pub async fn pull(
    name: &Reference,
    layout: &OciLayout,
    access: &Access,
    progress: ExchangeProgress<'_>,
) -> Result<Pulled> {
    let lease = layout.keep_collectors_away()?;
    let (_, image) = find(&access.registry(name)?, name).await?;
    let source = Retried::new(access.registry(name)?, RetryPolicy::default());
    let blobs = parts(&image);
    let mut before = 0;
    for (index, (digest, size)) in blobs.iter().enumerate() {
        let exists = layout.blob_path(digest).metadata().is_ok_and(|found| found.len() == *size);
        if !exists {
            let report = |bytes| progress(index + 1, blobs.len(), before + bytes);
            fetch(&source, layout, digest, *size, report).await?;
        }
        before += size;
    }
    let manifest = layout.put(OCI_MANIFEST, &image.encode()?)?;
    Ok(Pulled { image, manifest, _lease: lease })
}

/// Gives a layout folder the blobs of an image of another one: by links, or by copies where links
/// cannot be made. The image gets no name.
pub fn share(from: &OciLayout, manifest: &Descriptor, to: &OciLayout) -> Result<()> {
    let _pinned = from.pin(&manifest.digest)?;
    let _lease = to.keep_collectors_away()?;
    let image = read(from, manifest)?;
    let digests = parts(&image).into_iter().map(|(digest, _)| digest);
    for digest in digests.chain([manifest.digest.clone()]) {
        let there = to.blob_path(&digest);
        if there.exists() || fs::hard_link(from.blob_path(&digest), &there).is_ok() {
            continue;
        }
        let mut file = to.pending()?;
        let copied = io::copy(&mut from.open_blob(&digest)?, &mut file);
        copied.map_err(Error::io("write", &there))?;
        to.keep(file, &digest)?;
    }
    Ok(())
}

fn parts(image: &Image) -> Vec<(OciDigest, u64)> {
    let config = (image.config.digest.clone(), image.config.size);
    image.blobs().map(|blob| (blob.digest.clone(), blob.size)).chain([config]).collect()
}

async fn fetch(
    source: &impl BlockSource,
    layout: &OciLayout,
    digest: &OciDigest,
    size: u64,
    report: impl Fn(u64),
) -> Result<()> {
    let mut file = layout.pending()?;
    let path = file.path().to_owned();
    let mut hasher = Sha256::new();
    let mut at = 0;
    while at < size {
        report(at);
        let piece = source.fetch(digest, at..size.min(at + REQUEST_BYTES)).await?;
        hasher.update(&piece);
        file.write_all(&piece).map_err(Error::io("write", &path))?;
        at += piece.len() as u64;
    }
    digest.check_is(&format!("the blob {digest}"), &OciDigest::from_hasher(hasher))?;
    layout.keep(file, digest)
}
