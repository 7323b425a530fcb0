//! Durations of calls and queries, by tenant, function and outcome, as histograms.
//!
//! Invariant: there is a bounded number of series, whatever names clients use, so the memory and
//! the text of the metrics are bounded too.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use snowmelt_types::{ErrorReport, Tenant};

/// Upper bounds of the histograms in seconds. Durations above the last bound count too.
pub(crate) const BOUNDS_S: [f64; 12] =
    [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 3600.0];

/// The most series, each of which has a line for every bound.
const MAX_SERIES: usize = 1_000;

/// The name that stands for all functions and tenants without a series of their own.
const OTHERS: &str = "(others)";

/// The outcome of work that did what it was asked to.
pub(crate) const SUCCEEDED: &str = "succeeded";

/// The outcome of work that ended because its client had gone.
pub(crate) const DROPPED: &str = "dropped";

/// The labels of a series of durations.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Series {
    pub tenant: String,
    /// The name of the function; empty for queries.
    pub function: String,
    pub outcome: &'static str,
}

/// A histogram of durations.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Histogram {
    /// Numbers of durations: for each of [`BOUNDS_S`] those of at most that and above the bound
    /// before; then those above the last bound.
    pub buckets: [u64; BOUNDS_S.len() + 1],
    pub sum: Duration,
}

/// All histograms of one kind of work, such as calls.
#[derive(Debug, Default)]
pub(crate) struct Durations {
    series: Mutex<BTreeMap<Series, Histogram>>,
}

/// Returns the outcome of work as a label: `succeeded`, or the code of its error.
pub(crate) fn outcome<T>(result: &Result<T, ErrorReport>) -> &'static str {
    match result {
        Ok(_) => SUCCEEDED,
        Err(error) => error.known_code().code,
    }
}

impl Durations {
    pub fn record(&self, tenant: &Tenant, function: &str, outcome: &'static str, took: Duration) {
        let tenant = tenant.to_string();
        let function = function.to_owned();
        let mut key = Series { tenant, function, outcome };
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        if series.len() >= MAX_SERIES && !series.contains_key(&key) {
            let others = || OTHERS.to_owned();
            key = Series { tenant: others(), function: others(), outcome };
        }
        series.entry(key).or_default().add(took);
    }

    /// Returns all series, or the series of one tenant.
    pub fn read(&self, of: Option<&Tenant>) -> Vec<(Series, Histogram)> {
        let series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let is_of = |key: &Series| of.is_none_or(|tenant| key.tenant == tenant.as_str());
        let kept = series.iter().filter(|(key, _)| is_of(key));
        kept.map(|(key, histogram)| (key.clone(), histogram.clone())).collect()
    }
}

impl Histogram {
    fn add(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = BOUNDS_S.iter().position(|bound| seconds <= *bound);
        self.buckets[bucket.unwrap_or(BOUNDS_S.len())] += 1;
        self.sum += took;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_by_tenant_function_and_outcome() {
        let durations = Durations::default();
        let acme = "acme".parse::<Tenant>().unwrap();
        let second = Duration::from_secs(1);
        durations.record(&acme, "f", "succeeded", second);
        durations.record(&acme, "f", "succeeded", 2 * second);
        durations.record(&acme, "f", "SM-0201", 7200 * second);
        durations.record(&Tenant::default(), "f", "succeeded", second);
        let found = durations.read(Some(&acme));
        assert_eq!(found.len(), 2);
        let failed = &found[0];
        let succeeded = &found[1];
        assert_eq!((failed.0.outcome, failed.1.buckets[12]), ("SM-0201", 1));
        assert_eq!((succeeded.1.buckets[6], succeeded.1.buckets[7]), (1, 1));
        assert_eq!(succeeded.1.sum, 3 * second);
        assert_eq!(durations.read(None).len(), 3);
    }

    #[test]
    fn names_that_never_end_have_one_series() {
        let durations = Durations::default();
        let tenant = Tenant::default();
        for number in 0..2 * MAX_SERIES {
            durations.record(&tenant, &format!("f{number}"), "succeeded", Duration::ZERO);
        }
        let found = durations.read(None);
        assert_eq!(found.len(), MAX_SERIES + 1);
        let others = found.iter().find(|(key, _)| key.function == OTHERS).unwrap();
        assert_eq!(others.1.buckets[0], MAX_SERIES as u64);
        assert_eq!(durations.read(Some(&tenant)).len(), MAX_SERIES);
        assert_eq!(outcome::<()>(&Ok(())), "succeeded");
    }
}
