//! Blobs whose source has just failed a read for the whole time that a read has. The kernel repeats
//! such a read at once, and for the next pages as well: without this record, each would wait as
//! long again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::block::OciDigest;

/// The time after a failure during which reads of the same blob have only one attempt.
const PAUSE: Duration = Duration::from_secs(5);

/// The time of the last failed read of each blob.
#[derive(Default)]
pub(super) struct FailedReads(Mutex<HashMap<OciDigest, Instant>>);

impl FailedReads {
    /// Notes that a read of a blob has failed.
    pub fn add(&self, blob: &OciDigest) {
        let mut failed = self.failed();
        failed.retain(|_, at| at.elapsed() < PAUSE);
        failed.insert(blob.clone(), Instant::now());
    }

    /// Returns whether a read of a blob has just failed.
    pub fn has(&self, blob: &OciDigest) -> bool {
        self.failed().get(blob).is_some_and(|at| at.elapsed() < PAUSE)
    }

    fn failed(&self) -> MutexGuard<'_, HashMap<OciDigest, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
