//! The reasons of failed reads of a mount: through the kernel, readers receive only an errno.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::Error;

/// The last failure of a mount.
#[derive(Debug, Default)]
pub(super) struct MountFailures {
    last: Mutex<Option<(Instant, Error)>>,
}

impl MountFailures {
    /// Stores a failure in the place of the previous one.
    pub fn keep(&self, error: Error) {
        *self.last() = Some((Instant::now(), error));
    }

    /// Removes and returns the last failure, if it occurred at or after `since`.
    pub fn take(&self, since: Instant) -> Option<Error> {
        let (_, error) = self.last().take_if(|(at, _)| *at >= since)?;
        Some(error)
    }

    fn last(&self) -> MutexGuard<'_, Option<(Instant, Error)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
