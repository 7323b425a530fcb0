//! A source that is asked for so much at once and in a second at most.

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

/// Bytes in a second; a pause saves up for one tenth of a second at most.
#[derive(Clone, Copy, Debug)]
pub struct Rate(pub u64);

impl Rate {
    fn time_of(self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.0.max(1) as f64)
    }
}

/// Asks `S` for no more than that.
pub struct Limited<S> {
    inner: S,
    at_once: Semaphore,
    rate: Option<Rate>,
    /// When the bytes that were granted so far are used up.
    free_at: Mutex<Instant>,
}

impl<S: BlockSource> Limited<S> {
    /// Around a source; `at_once` requests, at least one.
    pub fn new(inner: S, at_once: usize, rate: Option<Rate>) -> Self {
        let at_once = Semaphore::new(at_once.clamp(1, Semaphore::MAX_PERMITS));
        Self { inner, at_once, rate, free_at: Mutex::new(Instant::now()) }
    }

    /// Books the bytes and says when they may be asked for.
    fn book(&self, bytes: u64) -> Option<Instant> {
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
        let permit = self.at_once.acquire().await;
        let _permit = permit.map_err(|error| Error::unreachable("a block", error.to_string()))?;
        if let Some(start) = self.book(range.end.saturating_sub(range.start)) {
            tokio::time::sleep_until(start).await;
        }
        self.inner.fetch(blob, range).await
    }
}
