//! Counts calls of functions by how they end.
//!
//! Invariant: a call that began is counted once, however it ends; one that is dropped has failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use snowmelt_api::{CallFigures, FunctionSpec};
use snowmelt_types::{ErrorReport, Tenant};

use super::durations::{DROPPED, Durations, outcome};

/// Stands for the names of functions that end with their client: each has a name of its own.
const TEMPORARY: &str = "(temporary)";

/// The name of a function in the metrics.
pub(crate) fn label(spec: &FunctionSpec) -> &str {
    if spec.ephemeral { TEMPORARY } else { spec.name.as_str() }
}

/// The counters of calls.
#[derive(Debug, Default)]
pub(crate) struct CallCounters {
    begun: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
    durations: Durations,
}

/// A guard of a running call, which counts its end when it is dropped.
pub(crate) struct CallGuard {
    calls: Arc<CallCounters>,
    tenant: Tenant,
    function: String,
    begun: Instant,
    outcome: &'static str,
    succeeded: bool,
}

impl CallCounters {
    pub fn figures(&self) -> CallFigures {
        let succeeded = self.succeeded.load(Ordering::Relaxed);
        let failed = self.failed.load(Ordering::Relaxed);
        let begun = self.begun.load(Ordering::Relaxed);
        CallFigures { running: begun.saturating_sub(succeeded + failed), succeeded, failed }
    }

    pub fn durations(&self) -> &Durations {
        &self.durations
    }
}

impl CallGuard {
    pub fn begin(calls: &Arc<CallCounters>, tenant: &Tenant, spec: &FunctionSpec) -> Self {
        calls.begun.fetch_add(1, Ordering::Relaxed);
        Self {
            calls: Arc::clone(calls),
            tenant: tenant.clone(),
            function: label(spec).to_owned(),
            begun: Instant::now(),
            outcome: DROPPED,
            succeeded: false,
        }
    }

    /// Counts the call by its outcome.
    pub fn ended<T>(mut self, result: &Result<T, ErrorReport>) {
        self.succeeded = result.is_ok();
        self.outcome = outcome(result);
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        let CallCounters { succeeded, failed, .. } = &*self.calls;
        let counter = if self.succeeded { succeeded } else { failed };
        counter.fetch_add(1, Ordering::Relaxed);
        let took = self.begun.elapsed();
        self.calls.durations.record(&self.tenant, &self.function, self.outcome, took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::rig::spec;

    #[test]
    fn a_call_that_is_dropped_has_failed() {
        let calls = Arc::new(CallCounters::default());
        let tenant = Tenant::default();
        let named = spec("");
        let temporary = FunctionSpec { ephemeral: true, ..named.clone() };
        let one = CallGuard::begin(&calls, &tenant, &named);
        let other = CallGuard::begin(&calls, &tenant, &temporary);
        assert_eq!(calls.figures().running, 2);
        one.ended(&Ok(()));
        drop(other);
        let series = calls.durations().read(None);
        let shown: Vec<_> = series.iter().map(|(key, _)| (&*key.function, key.outcome)).collect();
        assert_eq!(shown, [("(temporary)", "dropped"), ("f", "succeeded")]);
        let figures = calls.figures();
        assert_eq!((figures.running, figures.succeeded, figures.failed), (0, 1, 1));
    }
}
