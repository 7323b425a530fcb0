//! A repository of an OCI registry (distribution specification 1.1): images from it, ranges of
//! blobs from it, blobs and manifests to it.

use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use reqwest::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, RANGE};
use reqwest::{Method, Response, StatusCode, Url};
use tokio::runtime::Handle;

use super::document::{Document, LARGEST, Platform};
use super::transfer::{Transfer, failed};
use super::{Credentials, Described, Origin, Reference};
use crate::block::OciDigest;
use crate::manifest::{Descriptor, OCI_MANIFEST};
use crate::read::BlockSource;
use crate::{Error, Result};

/// What a manifest may be.
const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, \
     application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json, \
     application/vnd.docker.distribution.manifest.list.v2+json";

/// One repository.
pub struct Registry {
    transfer: Transfer,
    repository: String,
}

impl Registry {
    /// With the credentials that `docker login` keeps.
    pub fn new(reference: &Reference) -> Result<Self> {
        Self::with_credentials(reference, Credentials::find(&reference.registry)?)
    }

    /// With these, or as nobody.
    pub fn with_credentials(reference: &Reference, login: Option<Credentials>) -> Result<Self> {
        let transfer = Transfer::new(&reference.registry, login)?;
        Ok(Self { transfer, repository: reference.repository.clone() })
    }

    /// A manifest by tag or digest.
    pub async fn manifest(&self, selector: &str) -> Result<(Descriptor, Bytes)> {
        let url = self.url(&format!("manifests/{selector}"))?;
        let what = format!("the manifest {selector}");
        let answer =
            self.transfer.send(Method::GET, url, |it| it.header(ACCEPT, MANIFESTS)).await?;
        let media_type = answer.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type = media_type.unwrap_or(OCI_MANIFEST).to_owned();
        let bytes = whole(&what, answer).await?;
        let digest = OciDigest::of(&bytes);
        if let Ok(expected) = selector.parse::<OciDigest>() {
            expected.check_is(&what, &digest)?;
        }
        Ok((Descriptor::new(&media_type, digest, bytes.len() as u64), bytes))
    }

    /// A small blob, compared with its digest.
    pub async fn document(&self, digest: &OciDigest) -> Result<Bytes> {
        let what = format!("the document {digest}");
        let bytes = whole(&what, self.blob(digest).await?).await?;
        digest.check(&what, &bytes)?;
        Ok(bytes)
    }

    /// Sends a blob unless it is there.
    pub async fn push_blob(&self, digest: &OciDigest, path: &Path) -> Result<()> {
        let there = self.transfer.send(Method::HEAD, self.blob_url(digest)?, |it| it).await;
        match there {
            Err(Error::Missing { .. }) => {}
            there => return there.map(drop),
        }
        let started = self
            .transfer
            .send(Method::POST, self.url("blobs/uploads/")?, |it| it.header(CONTENT_LENGTH, 0));
        let mut upload = location(&started.await?)?;
        upload.query_pairs_mut().append_pair("digest", digest.as_str());
        let size = std::fs::metadata(path).map_err(Error::io("read", path))?.len();
        // Read at positions, so that a second try can begin at the first byte again.
        let file = Arc::new(std::fs::File::open(path).map_err(Error::io("open", path))?);
        let send = |it: reqwest::RequestBuilder| {
            it.header(CONTENT_TYPE, "application/octet-stream")
                .header(CONTENT_LENGTH, size)
                .body(reqwest::Body::wrap_stream(pieces(Arc::clone(&file), size)))
        };
        self.transfer.send(Method::PUT, upload, send).await.map(drop)
    }

    /// Stores a manifest under a tag or its digest.
    pub async fn push_manifest(
        &self,
        selector: &str,
        media_type: &str,
        bytes: Bytes,
    ) -> Result<()> {
        let url = self.url(&format!("manifests/{selector}"))?;
        let send =
            |it: reqwest::RequestBuilder| it.header(CONTENT_TYPE, media_type).body(bytes.clone());
        self.transfer.send(Method::PUT, url, send).await.map(drop)
    }

    async fn blob(&self, digest: &OciDigest) -> Result<Response> {
        self.transfer.send(Method::GET, self.blob_url(digest)?, |it| it).await
    }

    fn blob_url(&self, digest: &OciDigest) -> Result<Url> {
        self.url(&format!("blobs/{digest}"))
    }

    fn url(&self, rest: &str) -> Result<Url> {
        self.transfer.url(&format!("{}/{rest}", self.repository))
    }
}

#[async_trait]
impl BlockSource for Registry {
    async fn fetch(&self, blob: &OciDigest, range: Range<u64>) -> Result<Bytes> {
        let what = format!("the bytes {range:?} of {blob}");
        let header = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
        let url = self.blob_url(blob)?;
        let mut answer =
            self.transfer.send(Method::GET, url, |it| it.header(RANGE, &header)).await?;
        // A registry that knows no ranges sends all of it.
        let mut skip = if answer.status() == StatusCode::PARTIAL_CONTENT { 0 } else { range.start };
        let wanted = (range.end - range.start) as usize;
        let mut bytes = BytesMut::with_capacity(wanted);
        while bytes.len() < wanted {
            let chunk = answer.chunk().await.map_err(|error| failed(&what, &error))?;
            let Some(chunk) = chunk else { break };
            let skipped = skip.min(chunk.len() as u64) as usize;
            skip -= skipped as u64;
            let left = wanted - bytes.len();
            bytes.extend_from_slice(&chunk[skipped..chunk.len().min(skipped.saturating_add(left))]);
        }
        if bytes.len() == wanted {
            return Ok(bytes.freeze());
        }
        // The answer came to its end, or its body would have failed: the blob ends there.
        Err(crate::read::outside(blob, &range))
    }
}

/// Where an upload goes on; may be relative.
fn location(answer: &Response) -> Result<Url> {
    let header = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    let found = header.and_then(|text| answer.url().join(text).ok());
    found.ok_or_else(|| Error::refused("an upload", "the registry does not say where to"))
}

/// A document, which is small.
async fn whole(what: &str, mut answer: Response) -> Result<Bytes> {
    let mut bytes = BytesMut::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| failed(what, &error))? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() as u64 > LARGEST {
            return Err(Error::Limit { what: what.to_owned(), limit: LARGEST, unit: "bytes" });
        }
    }
    Ok(bytes.freeze())
}

/// A file in pieces, read as they are sent.
fn pieces(
    file: Arc<std::fs::File>,
    size: u64,
) -> impl futures::Stream<Item = io::Result<Bytes>> + Send + 'static {
    use std::os::unix::fs::FileExt;
    const PIECE: u64 = 256 << 10;
    futures::stream::unfold(0u64, move |at| {
        let file = Arc::clone(&file);
        async move {
            if at >= size {
                return None;
            }
            let mut piece = vec![0; PIECE.min(size - at) as usize];
            let next = at + piece.len() as u64;
            Some((file.read_exact_at(&mut piece, at).map(|()| piece.into()), next))
        }
    })
}

/// An image in a registry. Its calls block, and must not be made on a thread of the runtime.
pub struct RegistryOrigin {
    registry: Registry,
    original: Descriptor,
    document: Document,
    runtime: Handle,
}

impl RegistryOrigin {
    /// The image of that name for that platform.
    pub async fn open(
        registry: Registry,
        reference: &Reference,
        platform: &Platform,
    ) -> Result<Self> {
        let (mut original, bytes) = registry.manifest(reference.selector()).await?;
        let mut document = Document::parse(&bytes)?;
        if let Some(chosen) = document.for_platform(platform)? {
            let bytes;
            (original, bytes) = registry.manifest(chosen.digest.as_str()).await?;
            document = Document::parse(&bytes)?;
        }
        Ok(Self { registry, original, document, runtime: Handle::current() })
    }
}

impl Origin for RegistryOrigin {
    fn describe(&self) -> Result<Described> {
        let config =
            self.runtime.block_on(self.registry.document(&self.document.config()?.digest))?;
        Ok(Described {
            config: Some(config.to_vec()),
            layers: self.document.layers.len(),
            original: Some(self.original.clone()),
        })
    }

    fn layer(&self, index: usize) -> Result<Box<dyn Read + '_>> {
        let layer = self.document.layers.get(index);
        let layer = layer.ok_or_else(|| Error::missing(format!("the layer {index}")))?;
        let answer = self.runtime.block_on(self.registry.blob(&layer.digest))?;
        Ok(Box::new(Body { answer, runtime: &self.runtime, chunk: Bytes::new() }))
    }
}

/// The body of an answer as a stream.
struct Body<'a> {
    answer: Response,
    runtime: &'a Handle,
    chunk: Bytes,
}

impl Read for Body<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.chunk.is_empty() {
            let next = self.runtime.block_on(self.answer.chunk()).map_err(io::Error::other)?;
            self.chunk = next.unwrap_or_default();
        }
        let count = self.chunk.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.chunk.split_to(count));
        Ok(count)
    }
}
