//! Block images between registries and layout folders.
//!
//! Invariant: a blob arrives whole and is compared with its SHA-256 before it has its name; the
//! manifest goes last, so that whoever can read it can read what it names.

use std::io::Write;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::block::OciDigest;
use crate::manifest::{Descriptor, OCI_MANIFEST};
use crate::read::{BlockSource, Patience, Retried};
use crate::source::{Layout, Reference, Registry};
use crate::{Error, Image, Result};

/// Stored bytes of one request.
const AT_ONCE: u64 = 8 << 20;

/// What is told while bytes move: the blob's number from 1, of how many, and bytes so far.
pub type Watch<'a> = &'a (dyn Fn(usize, usize, u64) + Sync);

/// A block image in a registry, by its manifest.
pub async fn find(registry: &Registry, name: &Reference) -> Result<(Descriptor, Image)> {
    let (manifest, bytes) = registry.manifest(name.selector()).await?;
    Ok((manifest, Image::decode(&bytes)?))
}

/// A block image of a layout folder, by its manifest.
pub fn read(layout: &Layout, manifest: &Descriptor) -> Result<Image> {
    Image::decode(&layout.read_blob(manifest)?)
}

/// Sends an image with all of its blobs; those that are there stay. A tag that has another kind of
/// image is not taken from it.
pub async fn push(
    layout: &Layout,
    image: &Image,
    name: &Reference,
    watch: Watch<'_>,
) -> Result<()> {
    let registry = Registry::new(name)?;
    if let Ok((_, bytes)) = registry.manifest(name.selector()).await
        && Image::decode(&bytes).is_err()
    {
        let reason = "it has that name and is no block image: push to another tag";
        return Err(Error::refused(format!("the image {name}"), reason));
    }
    let blobs = parts(image);
    let mut bytes = 0;
    for (index, (digest, size)) in blobs.iter().enumerate() {
        watch(index + 1, blobs.len(), bytes);
        registry.push_blob(digest, &layout.blob_path(digest)).await?;
        bytes += size;
    }
    let manifest = Bytes::from(image.encode()?);
    registry.push_manifest(name.selector(), OCI_MANIFEST, manifest).await
}

/// Fetches an image with all of its blobs into a layout folder; it has no name there yet.
pub async fn pull(name: &Reference, layout: &Layout, watch: Watch<'_>) -> Result<Descriptor> {
    let _collectors = layout.keep_collectors_away()?;
    let (_, image) = find(&Registry::new(name)?, name).await?;
    let source = Retried::new(Registry::new(name)?, Patience::default());
    let blobs = parts(&image);
    let mut before = 0;
    for (index, (digest, size)) in blobs.iter().enumerate() {
        let there = layout.blob_path(digest).metadata().is_ok_and(|found| found.len() == *size);
        if !there {
            let told = |bytes| watch(index + 1, blobs.len(), before + bytes);
            fetch(&source, layout, digest, *size, told).await?;
        }
        before += size;
    }
    layout.put(OCI_MANIFEST, &image.encode()?)
}

fn parts(image: &Image) -> Vec<(OciDigest, u64)> {
    let config = (image.config.digest.clone(), image.config.size);
    image.blobs().map(|blob| (blob.digest.clone(), blob.size)).chain([config]).collect()
}

async fn fetch(
    source: &impl BlockSource,
    layout: &Layout,
    digest: &OciDigest,
    size: u64,
    told: impl Fn(u64),
) -> Result<()> {
    let mut file = layout.pending()?;
    let path = file.path().to_owned();
    let (mut hasher, mut at) = (Sha256::new(), 0);
    while at < size {
        told(at);
        let piece = source.fetch(digest, at..size.min(at + AT_ONCE)).await?;
        hasher.update(&piece);
        file.write_all(&piece).map_err(Error::io("write", &path))?;
        at += piece.len() as u64;
    }
    digest.check_is(&format!("the blob {digest}"), &OciDigest::from_hasher(hasher))?;
    layout.keep(file, digest)
}
