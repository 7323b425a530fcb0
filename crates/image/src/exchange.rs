//! Block images between registries and layout folders.
//!
//! Invariant: a blob arrives whole and is compared with its SHA-256 before it has its name; the
//! manifest goes last, so that whoever can read it can read what it names.

use std::io::Write;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::block::OciDigest;
use crate::manifest::{Descriptor, OCI_MANIFEST};
use crate::read::{BlockSource, Patience, Retried};
use crate::source::{Layout, Reference, Registry};
use crate::{Error, Image, Lock, Result};

/// Stored bytes of one request.
const AT_ONCE: u64 = 8 << 20;
/// Blobs that are asked for or sent at once: most are there, and asking takes a round trip each.
const BLOBS_AT_ONCE: usize = 4;

/// What is told while bytes move: the blob's number from 1, of how many, and bytes so far.
pub type Watch<'a> = &'a (dyn Fn(usize, usize, u64) + Sync);

/// What was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// Blobs that the registry did not have.
    pub blobs: Vec<OciDigest>,
    /// Their stored bytes.
    pub bytes: u64,
}

/// An image that was fetched. It has no name yet ([`Layout::tag`]) and stays without one as long as
/// this is held.
#[derive(Debug)]
pub struct Pulled {
    /// The image.
    pub image: Image,
    /// Its manifest in the layout.
    pub manifest: Descriptor,
    /// Keeps collectors away until the image could be given a name.
    _lease: Lock,
}

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
) -> Result<Sent> {
    let registry = Registry::new(name)?;
    match registry.manifest(name.selector()).await {
        Ok((_, bytes)) if Image::decode(&bytes).is_err() => {
            let reason = "it has that name and is no block image: push to another tag";
            return Err(Error::refused(format!("the image {name}"), reason));
        }
        // It was waited for long enough.
        Err(error) if error.is_transient() => return Err(error),
        _ => {}
    }
    let blobs = parts(image);
    let one = async |(digest, size): &(OciDigest, u64)| {
        let is_new = registry.push_blob(digest, &layout.blob_path(digest)).await?;
        Ok::<_, Error>((digest.clone(), *size, is_new))
    };
    let mut sending = stream::iter(blobs.iter().map(one)).buffered(BLOBS_AT_ONCE);
    let (mut sent, mut done, mut bytes) = (Sent::default(), 0, 0);
    loop {
        watch((done + 1).min(blobs.len()), blobs.len(), bytes);
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
pub async fn pull(name: &Reference, layout: &Layout, watch: Watch<'_>) -> Result<Pulled> {
    let lease = layout.keep_collectors_away()?;
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
    let manifest = layout.put(OCI_MANIFEST, &image.encode()?)?;
    Ok(Pulled { image, manifest, _lease: lease })
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
