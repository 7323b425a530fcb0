//! Sources that count, fail and stall on demand, and the decorators on top of them.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use snowmelt_image::block::OciDigest;
use snowmelt_image::read::{BlockSource, Retried, RetryPolicy, conformance};
use snowmelt_image::{Error, Result};

/// The behaviour of a source for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    Cut,
    Flip,
    Fail,
    Stall,
}

/// Blobs in memory, and the faults of the next requests.
#[derive(Default)]
pub struct MemorySource {
    pub blobs: Vec<(OciDigest, Bytes)>,
    pub faults: Mutex<Vec<Fault>>,
    pub requested: Mutex<Vec<(OciDigest, Range<u64>)>>,
    pub bytes: AtomicU64,
}

impl MemorySource {
    pub fn of(contents: Vec<Vec<u8>>) -> Self {
        let named = |content: Vec<u8>| (OciDigest::of(&content), content.into());
        Self { blobs: contents.into_iter().map(named).collect(), ..Self::default() }
    }

    /// The same blobs under the same names, even if their content has changed.
    pub fn again(&self) -> Self {
        Self { blobs: self.blobs.clone(), ..Self::default() }
    }

    pub fn faults(self, faults: &[Fault]) -> Self {
        Self { faults: Mutex::new(faults.iter().rev().copied().collect()), ..self }
    }

    async fn answer(&self, blob: &OciDigest, range: &Range<u64>) -> Result<Bytes> {
        let found = self.blobs.iter().find(|(name, _)| name == blob);
        let Some((_, content)) = found else {
            return Err(Error::Missing { what: format!("the blob {blob}") });
        };
        if range.end > content.len() as u64 {
            let what = format!("the blob {blob}");
            let reason = "outside".to_owned();
            return Err(Error::Refused { what, reason });
        }
        let bytes = content.slice(range.start as usize..range.end as usize);
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let fault = self.faults.lock().unwrap().pop();
        match fault {
            None | Some(Fault::None) => Ok(bytes),
            Some(Fault::Cut) => Ok(bytes.slice(..bytes.len() - 1)),
            Some(Fault::Flip) => {
                let mut bytes = bytes.to_vec();
                bytes[0] ^= 1;
                Ok(bytes.into())
            }
            Some(Fault::Fail) => {
                let what = "a block".to_owned();
                let reason = "status 500".to_owned();
                Err(Error::Unreachable { what, reason, after: None })
            }
            Some(Fault::Stall) => std::future::pending().await,
        }
    }
}

#[async_trait]
impl BlockSource for MemorySource {
    async fn fetch(&self, blob: &OciDigest, range: Range<u64>) -> Result<Bytes> {
        self.requested.lock().unwrap().push((blob.clone(), range.clone()));
        tokio::task::yield_now().await;
        self.answer(blob, &range).await
    }
}

fn quick() -> RetryPolicy {
    RetryPolicy {
        within: Duration::ZERO,
        first_wait: Duration::from_millis(1),
        attempt: Duration::from_millis(200),
        ..RetryPolicy::default()
    }
}

#[tokio::test]
async fn a_source_conforms_with_and_without_retries() {
    let content = conformance::content();
    let source = || MemorySource::of(vec![content.clone()]);
    conformance::check(&source(), &content).await;
    conformance::check(&Retried::new(source(), quick()), &content).await;
}

#[tokio::test]
async fn a_failing_or_stalling_source_is_retried() {
    let faults = [Fault::Fail, Fault::Stall, Fault::Fail];
    let source = Retried::new(MemorySource::of(vec![b"text".to_vec()]).faults(&faults), quick());
    assert_eq!(source.fetch(&OciDigest::of(b"text"), 1..3).await.unwrap(), "ex");
    let faults = [Fault::Fail; 5];
    let source = Retried::new(MemorySource::of(vec![b"text".to_vec()]).faults(&faults), quick());
    assert!(source.fetch(&OciDigest::of(b"text"), 1..3).await.unwrap_err().is_transient());
}

#[tokio::test]
async fn a_short_outage_is_waited_for() {
    let policy = RetryPolicy {
        within: Duration::from_secs(600),
        longest_wait: Duration::from_millis(2),
        ..quick()
    };
    let faults = [Fault::Fail; 40];
    let source = MemorySource::of(vec![b"text".to_vec()]).faults(&faults);
    let source = Retried::new(source, policy);
    assert_eq!(source.fetch(&OciDigest::of(b"text"), 1..3).await.unwrap(), "ex");
    let usual = RetryPolicy::default();
    assert!(usual.within >= Duration::from_secs(30), "a registry that is restarted");
}
