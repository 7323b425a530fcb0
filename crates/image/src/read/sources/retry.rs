//! A source that retries with exponential backoff.

use std::ops::Range;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, StreamExt};

use super::{BlockSource, Pieces, deadline};
use crate::block::OciDigest;
use crate::{Error, Result};

/// Limits of retries: a request is repeated as long as `attempts` or `within` allows it.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// The minimum number of attempts, including the first.
    pub attempts: u32,
    /// The minimum time to go on. Immediate failures, such as refused connections, would otherwise
    /// use up the attempts within a second, and a registry takes longer to restart.
    pub within: Duration,
    /// The wait after the first failure; each later one is twice as long.
    pub first_wait: Duration,
    /// The longest wait, even if the source asks for more.
    pub longest_wait: Duration,
    /// The timeout of one attempt.
    pub attempt: Duration,
}

impl Default for RetryPolicy {
    /// Returns a policy that is long enough to outlast a short outage: a process that reads a block
    /// of an image cannot be asked whether to go on, and a manifest is fetched from the same
    /// registry as the blocks.
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

impl RetryPolicy {
    /// Returns the wait after the failure `attempt`, counted from 0, or `None` if it was the last;
    /// `began` is the time of the first request or of its failure.
    pub(crate) fn next(&self, attempt: u32, began: Instant, error: &Error) -> Option<Duration> {
        let wait = self.wait(attempt, error);
        let goes_on = attempt + 1 < self.attempts || began.elapsed() + wait <= self.within;
        goes_on.then_some(wait)
    }

    /// Returns the wait after the failure `attempt`, counted from 0.
    pub(crate) fn wait(&self, attempt: u32, error: &Error) -> Duration {
        let doubled = self.first_wait.saturating_mul(1 << attempt.min(16));
        let asked = match error {
            Error::Unreachable { after: Some(after), .. } => *after,
            _ => Duration::ZERO,
        };
        doubled.max(asked).min(self.longest_wait)
    }
}

/// A source that retries requests to `S` after transient failures, and returns the last error.
/// Requests of a read are repeated only within the deadline of the read.
pub struct Retried<S> {
    inner: S,
    policy: RetryPolicy,
}

impl<S: BlockSource> Retried<S> {
    /// Wraps a source.
    pub fn new(inner: S, policy: RetryPolicy) -> Self {
        Self { inner, policy }
    }

    /// Retries until `once` succeeds, fails permanently, or the policy gives up.
    async fn retry<T, F: Future<Output = Result<T>> + Send>(
        &self,
        blob: &OciDigest,
        range: &Range<u64>,
        once: impl Fn() -> F + Send + Sync,
    ) -> Result<T> {
        let mut attempt = 0;
        let began = Instant::now();
        loop {
            let limit = self.policy.attempt;
            let limit = deadline::left().map_or(limit, |left| left.min(limit));
            let error = match tokio::time::timeout(limit, once()).await {
                Ok(Err(error)) if error.is_transient() => error,
                Ok(outcome) => return outcome,
                Err(_) => {
                    let what = format!("the bytes {range:?} of {blob}");
                    Error::unreachable(what, format!("no answer within {limit:?}"))
                }
            };
            let wait = match deadline::current() {
                None => self.policy.next(attempt, began, &error),
                Some(until) => {
                    let wait = self.policy.wait(attempt, &error);
                    (tokio::time::Instant::now() + wait < until).then_some(wait)
                }
            };
            let Some(wait) = wait else { return Err(error) };
            tracing::debug!(%blob, %error, ?wait, "fetching a block again");
            tokio::time::sleep(wait).await;
            attempt += 1;
        }
    }
}

#[async_trait]
impl<S: BlockSource> BlockSource for Retried<S> {
    async fn fetch(&self, blob: &OciDigest, range: Range<u64>) -> Result<Bytes> {
        self.retry(blob, &range, || self.inner.fetch(blob, range.clone())).await
    }

    /// Retries until the first piece arrives; the caller handles the loss of a stream after that.
    async fn stream(&self, blob: &OciDigest, range: Range<u64>) -> Result<Pieces> {
        let inner = &self.inner;
        let range = &range;
        let begin = || async move {
            let mut pieces = inner.stream(blob, range.clone()).await?;
            let first = pieces.next().await.transpose()?.unwrap_or_default();
            Ok((first, pieces))
        };
        let (first, rest) = self.retry(blob, range, begin).await?;
        Ok(stream::once(async { Ok(first) }).chain(rest).boxed())
    }

    fn stripe(&self, blob: &OciDigest, byte: u64) -> usize {
        self.inner.stripe(blob, byte)
    }

    fn found_damaged(&self, blob: &OciDigest, range: &Range<u64>) {
        self.inner.found_damaged(blob, range);
    }
}
