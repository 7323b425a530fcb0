//! Hedged requests: a second source is asked too when the first is slow or fails.

use std::ops::Range;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::{Either, select};

use super::BlockSource;
use crate::Result;
use crate::block::OciDigest;

/// Returns the first success of the two and drops the other request. If both fail, the last error
/// is returned.
pub struct Hedged<A, B> {
    first: A,
    second: B,
    /// How long the first source may take before the second is asked.
    delay: Duration,
}

impl<A: BlockSource, B: BlockSource> Hedged<A, B> {
    /// Combines two sources, which may be the same.
    pub fn new(first: A, second: B, delay: Duration) -> Self {
        Self { first, second, delay }
    }
}

#[async_trait]
impl<A: BlockSource, B: BlockSource> BlockSource for Hedged<A, B> {
    async fn fetch(&self, blob: &OciDigest, range: Range<u64>) -> Result<Bytes> {
        let mut first = self.first.fetch(blob, range.clone());
        match tokio::time::timeout(self.delay, &mut first).await {
            Ok(Ok(bytes)) => return Ok(bytes),
            Ok(Err(error)) => {
                tracing::debug!(%blob, %error, "asking the second source");
                return self.second.fetch(blob, range).await;
            }
            Err(_) => {}
        }
        match select(first, self.second.fetch(blob, range)).await {
            Either::Left((Ok(bytes), _)) | Either::Right((Ok(bytes), _)) => Ok(bytes),
            Either::Left((Err(_), other)) => other.await,
            Either::Right((Err(_), other)) => other.await,
        }
    }
}
