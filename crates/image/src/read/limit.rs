//! A source with limited concurrency and bandwidth.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::BlockSource;
use crate::block::OciDigest;
use crate::{Error, Result};

/// Bytes per second; an idle period allows a burst of at most one tenth of a second.
#[derive(Clone, Copy, Debug)]
pub struct Rate(pub u64);

impl Rate {
    fn time_of(self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.0.max(1) as f64)
    }
}

/// Limits the requests to `S`.
pub struct Limited<S> {
    inner: S,
    concurrency: Semaphore,
    rate: Option<Rate>,
    /// When the bytes that were granted so far are used up.
    free_at: Mutex<Instant>,
}

impl<S: BlockSource> Limited<S> {
    /// Wraps a source; allows `concurrency` requests, at least one.
    pub fn new(inner: S, concurrency: usize, rate: Option<Rate>) -> Self {
        let concurrency = Semaphore::new(concurrency.clamp(1, Semaphore::MAX_PERMITS));
        Self { inner, concurrency, rate, free_at: Mutex::new(Instant::now()) }
    }

    /// Reserves the bytes and returns when they may be requested.
    fn reserve(&self, bytes: u64) -> Option<Instant> {
        let rate = self.rate?;
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let saved = now.checked_sub(Duration::from_millis(100)).unwrap_or(now);
        let start = (*free_at).max(saved);
        *free_at = start + rate.time_of(bytes);
        Some(start)
    }
}

#[async_trait]
impl<S: BlockSource> BlockSource for Limited<S> {
    async fn fetch(&self, blob: &OciDigest, range: Range<u64>) -> Result<Bytes> {
        let permit = self.concurrency.acquire().await;
        let _permit = permit.map_err(|error| Error::unreachable("a block", error.to_string()))?;
        if let Some(start) = self.reserve(range.end.saturating_sub(range.start)) {
            tokio::time::sleep_until(start).await;
        }
        self.inner.fetch(blob, range).await
    }
}
