//! Sources of the stored bytes of blobs: a registry, a peer, a folder.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};

use crate::Result;
use crate::block::OciDigest;

/// A source of stored bytes. Decorators implement it too.
///
/// Calls may run concurrently; a dropped call leaves nothing behind. Errors:
/// [`crate::Error::Missing`] if the blob does not exist, [`crate::Error::Refused`] if the range is
/// not inside it, a transient one ([`crate::Error::is_transient`]) if a retry may help.
#[async_trait]
pub trait BlockSource: Send + Sync {
    /// Fetches exactly these bytes of a blob, unverified. The range is not empty.
    async fn fetch(&self, blob: &OciDigest, range: Range<u64>) -> Result<Bytes>;

    /// Fetches a range of a blob in pieces of any size as they arrive, so that the first ones can
    /// be used before the last.
    async fn stream(&self, blob: &OciDigest, range: Range<u64>) -> Result<Pieces> {
        let bytes = self.fetch(blob, range).await?;
        Ok(stream::once(async { Ok(bytes) }).boxed())
    }

    /// Returns the stripe of the block that begins at a byte of a blob. Blocks of different stripes
    /// come from different places: they are requested at the same time, and never in one request.
    fn stripe(&self, _blob: &OciDigest, _byte: u64) -> usize {
        0
    }

    /// Notes that bytes that this source gave for a range are not those of the blob. A source that
    /// knows which host sent them does not ask that host again.
    fn found_damaged(&self, _blob: &OciDigest, _range: &Range<u64>) {}
}

/// A stream of bytes in order. Nothing follows an error.
pub type Pieces = BoxStream<'static, Result<Bytes>>;

#[async_trait]
impl<S: BlockSource + ?Sized> BlockSource for Arc<S> {
    async fn fetch(&self, blob: &OciDigest, range: Range<u64>) -> Result<Bytes> {
        (**self).fetch(blob, range).await
    }

    async fn stream(&self, blob: &OciDigest, range: Range<u64>) -> Result<Pieces> {
        (**self).stream(blob, range).await
    }

    fn stripe(&self, blob: &OciDigest, byte: u64) -> usize {
        (**self).stripe(blob, byte)
    }

    fn found_damaged(&self, blob: &OciDigest, range: &Range<u64>) {
        (**self).found_damaged(blob, range);
    }
}
