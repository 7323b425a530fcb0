//! Uploads of blobs and manifests to a registry.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use reqwest::{Body, Method, Response, Url};

use super::Registry;
use super::transfer::Tries;
use crate::block::OciDigest;
use crate::{Error, Result};

impl Registry {
    /// Uploads a blob unless the registry has it; returns whether it was uploaded.
    pub async fn push_blob(&self, digest: &OciDigest, path: &Path) -> Result<bool> {
        if self.has(digest).await? {
            return Ok(false);
        }
        // Read at explicit offsets, so that a retry can start at the first byte.
        let file = Arc::new(std::fs::File::open(path).map_err(Error::io("open", path))?);
        let size = file.metadata().map_err(Error::io("read", path))?.len();
        let body = |sent: &Arc<AtomicU64>| {
            sent.store(0, Ordering::Relaxed);
            Body::wrap_stream(pieces(Arc::clone(&file), size, Arc::clone(sent)))
        };
        self.upload(digest, size, body).await.map(|()| true)
    }

    /// Uploads a small blob unless the registry has it.
    pub async fn push_document(&self, bytes: &Bytes) -> Result<OciDigest> {
        let digest = OciDigest::of(bytes);
        if !self.has(&digest).await? {
            let size = bytes.len() as u64;
            let body = |sent: &Arc<AtomicU64>| {
                sent.store(size, Ordering::Relaxed);
                Body::from(bytes.clone())
            };
            self.upload(&digest, size, body).await?;
        }
        Ok(digest)
    }

    /// Stores a manifest under a tag or its digest, and adds it to the referrers of its subject.
    pub async fn push_manifest(
        &self,
        selector: &str,
        media_type: &str,
        bytes: Bytes,
    ) -> Result<()> {
        let url = self.url(&format!("manifests/{selector}"))?;
        let send =
            |it: reqwest::RequestBuilder| it.header(CONTENT_TYPE, media_type).body(bytes.clone());
        let answer = self.transfer.send(Method::PUT, url, send).await?;
        if answer.headers().contains_key("oci-subject") {
            return Ok(());
        }
        self.list_referrer(media_type, &bytes).await
    }

    async fn has(&self, digest: &OciDigest) -> Result<bool> {
        match self.transfer.send(Method::HEAD, self.blob_url(digest)?, |request| request).await {
            Err(Error::Missing { .. }) => Ok(false),
            found => found.map(|_| true),
        }
    }

    /// Uploads a blob. After a failure the upload is restarted; the registry discards the partial
    /// one.
    async fn upload(
        &self,
        digest: &OciDigest,
        size: u64,
        body: impl Fn(&Arc<AtomicU64>) -> Body,
    ) -> Result<()> {
        let mut tries = Tries::default();
        loop {
            let error = match self.upload_once(digest, size, &body).await {
                // A registry that was restarted has lost the upload.
                Err(error @ (Error::Unreachable { .. } | Error::Missing { .. })) => error,
                outcome => return outcome,
            };
            if !self.transfer.should_retry(&mut tries, &error).await {
                return Err(error);
            }
        }
    }

    async fn upload_once(
        &self,
        digest: &OciDigest,
        size: u64,
        body: impl Fn(&Arc<AtomicU64>) -> Body,
    ) -> Result<()> {
        let begin = |it: reqwest::RequestBuilder| it.header(CONTENT_LENGTH, 0);
        let started = self.transfer.send_once(Method::POST, self.url("blobs/uploads/")?, begin);
        let mut target = location(&started.await?)?;
        target.query_pairs_mut().append_pair("digest", digest.as_str());
        let sent = Arc::new(AtomicU64::new(0));
        let send = |it: reqwest::RequestBuilder| {
            it.header(CONTENT_TYPE, "application/octet-stream")
                .header(CONTENT_LENGTH, size)
                .body(body(&sent))
        };
        self.transfer.upload(target, send, &sent, size).await.map(drop)
    }
}

/// Returns the target URL of an upload; the header may be relative.
fn location(answer: &Response) -> Result<Url> {
    let header = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    let found = header.and_then(|text| answer.url().join(text).ok());
    found.ok_or_else(|| Error::refused("an upload", "the registry returned no valid location"))
}

/// Streams a file in pieces, read while they are sent; `sent` is set to the end of the last piece.
fn pieces(
    file: Arc<std::fs::File>,
    size: u64,
    sent: Arc<AtomicU64>,
) -> impl futures::Stream<Item = io::Result<Bytes>> + Send + 'static {
    use std::os::unix::fs::FileExt;
    const PIECE: u64 = 256 << 10;
    futures::stream::unfold(0u64, move |at| {
        let file = Arc::clone(&file);
        let sent = Arc::clone(&sent);
        async move {
            if at >= size {
                return None;
            }
            let mut piece = vec![0; PIECE.min(size - at) as usize];
            let next = at + piece.len() as u64;
            sent.store(next, Ordering::Relaxed);
            Some((file.read_exact_at(&mut piece, at).map(|()| piece.into()), next))
        }
    })
}
