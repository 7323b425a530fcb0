//! A source that asks again, later and later.

use std::ops::Range;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::BlockSource;
use crate::block::OciDigest;
use crate::{Error, Result};

/// How long to go on.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How often at most, the first time too.
    pub attempts: u32,
    /// The wait behind the first failure; each later one is twice as long.
    pub first_wait: Duration,
    /// No wait is longer, whatever the source asks for.
    pub longest_wait: Duration,
    /// An answer that takes longer is a failure.
    pub attempt: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            attempts: 5,
            first_wait: Duration::from_millis(50),
            longest_wait: Duration::from_secs(5),
            attempt: Duration::from_secs(30),
        }
    }
}

impl Patience {
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

    async fn once(&self, blob: &OciDigest, range: Range<u64>) -> Result<Bytes> {
        let limit = self.patience.attempt;
        match tokio::time::timeout(limit, self.inner.fetch(blob, range.clone())).await {
            Ok(answer) => answer,
            Err(_) => {
                let what = format!("the bytes {range:?} of {blob}");
                Err(Error::unreachable(what, format!("no answer within {limit:?}")))
            }
        }
    }
}

#[async_trait]
impl<S: BlockSource> BlockSource for Retried<S> {
    async fn fetch(&self, blob: &OciDigest, range: Range<u64>) -> Result<Bytes> {
        let mut attempt = 0;
        loop {
            let error = match self.once(blob, range.clone()).await {
                Err(error) if error.is_transient() => error,
                outcome => return outcome,
            };
            if attempt + 1 >= self.patience.attempts {
                return Err(error);
            }
            let wait = self.patience.wait(attempt, &error);
            tracing::debug!(%blob, %error, ?wait, "fetching a block again");
            tokio::time::sleep(wait).await;
            attempt += 1;
        }
    }
}
