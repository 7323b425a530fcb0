//! Counts calls of functions by how they end.
//!
//! Invariant: a call that began is counted once, however it ends; one that is dropped has failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use snowmelt_api::CallFigures;

/// The counters.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    begun: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
}

/// A running call.
pub(crate) struct Counted {
    calls: Arc<Calls>,
    succeeded: bool,
}

impl Calls {
    pub fn figures(&self) -> CallFigures {
        let succeeded = self.succeeded.load(Ordering::Relaxed);
        let failed = self.failed.load(Ordering::Relaxed);
        let begun = self.begun.load(Ordering::Relaxed);
        CallFigures { running: begun.saturating_sub(succeeded + failed), succeeded, failed }
    }
}

impl Counted {
    pub fn begin(calls: &Arc<Calls>) -> Self {
        calls.begun.fetch_add(1, Ordering::Relaxed);
        Self { calls: Arc::clone(calls), succeeded: false }
    }

    pub fn succeeded(mut self) {
        self.succeeded = true;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let Calls { succeeded, failed, .. } = &*self.calls;
        let counter = if self.succeeded { succeeded } else { failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_is_dropped_has_failed() {
        let calls = Arc::new(Calls::default());
        let (one, other) = (Counted::begin(&calls), Counted::begin(&calls));
        assert_eq!(calls.figures().running, 2);
        one.succeeded();
        drop(other);
        let figures = calls.figures();
        assert_eq!((figures.running, figures.succeeded, figures.failed), (0, 1, 1));
    }
}
