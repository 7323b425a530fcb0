//! A repository of an OCI registry (distribution specification 1.1): download of images and ranges
//! of blobs, upload of blobs and manifests.
//!
//! | part | file |
//! |---|---|
//! | image names | `reference` |
//! | requests, with retries, and what failures mean | `transfer`, `failure` |
//! | credentials and tokens | `login`, `auth` |
//! | trusted certificates | `authorities` |
//! | whose credentials and certificates are used | `access` |
//! | upload of blobs and manifests | `upload` |
//! | artifacts that refer to an image | `referrers` |
//! | an image as the origin of a conversion, with resumed downloads | `origin` |

mod access;
mod auth;
mod authorities;
mod failure;
mod login;
mod origin;
mod reference;
mod referrers;
mod transfer;
mod upload;

use std::ops::Range;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::stream::{self, StreamExt, TryStreamExt};
use reqwest::header::{ACCEPT, CONTENT_TYPE, RANGE};
use reqwest::{Method, Response, StatusCode, Url};

pub use access::Access;
pub use authorities::{Authorities, trust_authorities};
pub use login::Credentials;
pub use origin::RegistryOrigin;
pub use reference::Reference;

use super::document::MAX_DOCUMENT_BYTES;
use crate::block::OciDigest;
use crate::manifest::{Descriptor, OCI_MANIFEST};
use crate::read::{BlockSource, Pieces, RetryPolicy};
use crate::{Error, Result};
use failure::failed;
use transfer::Transfer;

/// The accepted types of manifests.
const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, \
     application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json, \
     application/vnd.docker.distribution.manifest.list.v2+json";

/// A repository of a registry.
pub struct Registry {
    transfer: Transfer,
    repository: String,
}

impl Registry {
    /// Opens the repository of a reference, with the credentials that `docker login` has stored.
    pub fn new(reference: &Reference) -> Result<Self> {
        Access::own().registry(reference)
    }

    /// Opens the repository of a reference with these credentials, or with anonymous access.
    pub fn with_credentials(reference: &Reference, login: Option<Credentials>) -> Result<Self> {
        Self::with_retry_policy(reference, login, RetryPolicy::default())
    }

    /// Applies a retry policy to all requests, except those of [`BlockSource::fetch`], whose
    /// callers have their own policy ([`crate::read::Retried`]).
    pub fn with_retry_policy(
        reference: &Reference,
        login: Option<Credentials>,
        policy: RetryPolicy,
    ) -> Result<Self> {
        Self::connect(reference, login, policy, &Authorities::default())
    }

    fn connect(
        reference: &Reference,
        login: Option<Credentials>,
        policy: RetryPolicy,
        trusted: &Authorities,
    ) -> Result<Self> {
        let transfer = Transfer::new(&reference.registry, login, policy, trusted)?;
        Ok(Self { transfer, repository: reference.repository.clone() })
    }

    /// Fetches a manifest by tag or digest.
    pub async fn manifest(&self, selector: &str) -> Result<(Descriptor, Bytes)> {
        let url = self.url(&format!("manifests/{selector}"))?;
        let what = format!("the manifest {selector}");
        let answer = self
            .transfer
            .send(Method::GET, url, |request| request.header(ACCEPT, MANIFESTS))
            .await?;
        let media_type = answer.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type = media_type.unwrap_or(OCI_MANIFEST).to_owned();
        let bytes = whole(&what, answer).await?;
        let digest = OciDigest::of(&bytes);
        if let Ok(expected) = selector.parse::<OciDigest>() {
            expected.check_is(&what, &digest)?;
        }
        Ok((Descriptor::new(&media_type, digest, bytes.len() as u64), bytes))
    }

    /// Fetches a small blob and verifies its digest.
    pub async fn document(&self, digest: &OciDigest) -> Result<Bytes> {
        let what = format!("the document {digest}");
        let bytes = whole(&what, self.blob(digest, 0).await?.0).await?;
        digest.check(&what, &bytes)?;
        Ok(bytes)
    }

    /// Fetches a blob from a byte on. The second part of the result is the position at which the
    /// response starts: `from`, or 0 if the registry does not support ranges.
    async fn blob(&self, digest: &OciDigest, from: u64) -> Result<(Response, u64)> {
        let range = |it: reqwest::RequestBuilder| match from {
            0 => it,
            from => it.header(RANGE, format!("bytes={from}-")),
        };
        let answer = self.transfer.send(Method::GET, self.blob_url(digest)?, range).await?;
        let is_part = answer.status() == StatusCode::PARTIAL_CONTENT;
        Ok((answer, if is_part { from } else { 0 }))
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
        let wanted = (range.end - range.start) as usize;
        let mut pieces = self.stream(blob, range).await?;
        let mut bytes = BytesMut::with_capacity(wanted);
        while let Some(piece) = pieces.try_next().await? {
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes.freeze())
    }

    async fn stream(&self, blob: &OciDigest, range: Range<u64>) -> Result<Pieces> {
        let header = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
        let url = self.blob_url(blob)?;
        let answer = self
            .transfer
            .send_once(Method::GET, url, |request| request.header(RANGE, &header))
            .await?;
        // A registry that does not support ranges sends the whole blob.
        let is_part = answer.status() == StatusCode::PARTIAL_CONTENT;
        let skip = if is_part { 0 } else { range.start };
        let left = range.end - range.start;
        let body = RangeBody { answer, blob: blob.clone(), range, skip, left };
        Ok(stream::try_unfold(body, RangeBody::next).boxed())
    }
}

/// The part of a response that is left for a range.
struct RangeBody {
    answer: Response,
    blob: OciDigest,
    range: Range<u64>,
    /// The bytes to skip before the range.
    skip: u64,
    /// The remaining bytes of the range.
    left: u64,
}

impl RangeBody {
    async fn next(mut self) -> Result<Option<(Bytes, Self)>> {
        while self.left > 0 {
            let what = || format!("the bytes {:?} of {}", self.range, self.blob);
            let chunk = self.answer.chunk().await.map_err(|error| failed(&what(), &error))?;
            // The response is complete, or reading it would have failed: the blob ends here.
            let mut chunk = chunk.ok_or_else(|| crate::read::outside(&self.blob, &self.range))?;
            let skipped = self.skip.min(chunk.len() as u64);
            self.skip -= skipped;
            let mut piece = chunk.split_off(skipped as usize);
            piece.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
            self.left -= piece.len() as u64;
            if !piece.is_empty() {
                return Ok(Some((piece, self)));
            }
        }
        Ok(None)
    }
}

/// Reads the body of a small document.
async fn whole(what: &str, mut answer: Response) -> Result<Bytes> {
    let mut bytes = BytesMut::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| failed(what, &error))? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() as u64 > MAX_DOCUMENT_BYTES {
            let what = what.to_owned();
            let limit = MAX_DOCUMENT_BYTES;
            return Err(Error::Limit { what, limit, unit: "bytes" });
        }
    }
    Ok(bytes.freeze())
}
