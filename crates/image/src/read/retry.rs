//! A source that asks again, later and later.

use std::ops::Range;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, StreamExt};

use super::{BlockSource, Pieces};
use crate::block::OciDigest;
use crate::{Error, Result};

/// How long to go on: as long as one of `attempts` and `within` allows it.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// So often at least, the first time too.
    pub attempts: u32,
    /// For so long at least: failures that come at once, such as refused connections, are otherwise
    /// over within a second, and a registry takes longer to start again.
    pub within: Duration,
    /// The wait behind the first failure; each later one is twice as long.
    pub first_wait: Duration,
    /// No wait is longer, whatever the source asks for.
    pub longest_wait: Duration,
    /// An answer that takes longer is a failure.
    pub attempt: Duration,
}

impl Default for Patience {
    /// An outage is waited for: who reads a block of an image has nobody to ask whether to go on, and
    /// a manifest comes from the same registry as the blocks.
    fn default() -> Self {
        Self {
            attempts: 5,
            within: Duration::from_secs(45),
            first_wait: Duration::from_millis(50),
            longest_wait: Duration::from_secs(5),
            attempt: Duration::from_secs(30),
        }
    }
}

impl Patience {
    /// The wait behind the failure `attempt`, from 0, if it is not the last one; `began` is when the
    /// first request was made or had failed.
    pub(crate) fn next(&self, attempt: u32, began: Instant, error: &Error) -> Option<Duration> {
        let wait = self.wait(attempt, error);
        let goes_on = attempt + 1 < self.attempts || began.elapsed() + wait <= self.within;
        goes_on.then_some(wait)
    }

    /// The wait behind the failure `attempt`, from 0.
    pub(crate) fn wait(&self, attempt: u32, error: &Error) -> Duration {
        let doubled = self.first_wait.saturating_mul(1 << attempt.min(16));
        let asked = match error {
            Error::Unreachable { after: Some(after), .. } => *after,
            _ => Duration::ZERO,
        };
        doubled.max(asked).min(self.longest_wait)
    }
}

/// Asks `S` again where its failure is transient. The last error is the one that is told.
pub struct Retried<S> {
    inner: S,
    patience: Patience,
}

impl<S: BlockSource> Retried<S> {
    /// Around a source.
    pub fn new(inner: S, patience: Patience) -> Self {
        Self { inner, patience }
    }

    /// Asks again until `once` succeeds, fails for good or patience is out.
    async fn again<T, F: Future<Output = Result<T>> + Send>(
        &self,
        blob: &OciDigest,
        range: &Range<u64>,
        once: impl Fn() -> F + Send + Sync,
    ) -> Result<T> {
        let (mut attempt, began) = (0, Instant::now());
        loop {
            let limit = self.patience.attempt;
            let error = match tokio::time::timeout(limit, once()).await {
                Ok(Err(error)) if error.is_transient() => error,
                Ok(outcome) => return outcome,
                Err(_) => {
                    let what = format!("the bytes {range:?} of {blob}");
                    Error::unreachable(what, format!("no answer within {limit:?}"))
                }
            };
            let Some(wait) = self.patience.next(attempt, began, &error) else {
                return Err(error);
            };
            tracing::debug!(%blob, %error, ?wait, "fetching a block again");
            tokio::time::sleep(wait).await;
            attempt += 1;
        }
    }
}

#[async_trait]
impl<S: BlockSource> BlockSource for Retried<S> {
    async fn fetch(&self, blob: &OciDigest, range: Range<u64>) -> Result<Bytes> {
        self.again(blob, &range, || self.inner.fetch(blob, range.clone())).await
    }

    /// Until the first piece is there; who loses the stream behind that asks for the rest.
    async fn stream(&self, blob: &OciDigest, range: Range<u64>) -> Result<Pieces> {
        let (inner, range) = (&self.inner, &range);
        let begin = || async move {
            let mut pieces = inner.stream(blob, range.clone()).await?;
            let first = pieces.next().await.transpose()?.unwrap_or_default();
            Ok((first, pieces))
        };
        let (first, rest) = self.again(blob, range, begin).await?;
        Ok(stream::once(async { Ok(first) }).chain(rest).boxed())
    }
}
