//! Blobs whose source has just failed a read for the whole time that a read has. The kernel repeats
//! such a read at once, for the next pages as well: each would wait as long again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::block::OciDigest;

/// For how long after a failure reads of the same blob have one attempt.
const PAUSE: Duration = Duration::from_secs(5);

/// When reads of blobs failed last.
#[derive(Default)]
pub(super) struct FailedReads(Mutex<HashMap<OciDigest, Instant>>);

impl FailedReads {
    /// A read has failed.
    pub fn add(&self, blob: &OciDigest) {
        let mut failed = self.failed();
        failed.retain(|_, at| at.elapsed() < PAUSE);
        failed.insert(blob.clone(), Instant::now());
    }

    /// Whether a read has just failed.
    pub fn has(&self, blob: &OciDigest) -> bool {
        self.failed().get(blob).is_some_and(|at| at.elapsed() < PAUSE)
    }

    fn failed(&self) -> MutexGuard<'_, HashMap<OciDigest, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
