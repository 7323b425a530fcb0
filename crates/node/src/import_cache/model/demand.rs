//! The record of the imports that starts needed lately, and how often: counts that halve with time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::want::Want;

/// The time after which a cold start counts half.
const HALF_LIFE: Duration = Duration::from_secs(300);

/// The most wants that are remembered; the one with the lowest count is forgotten first.
const MOST: usize = 256;

/// The count below which a want is forgotten.
const FAINT: f64 = 0.02;

/// The decayed counts of cold starts, by what the started functions declare.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    wants: HashMap<Want, Count>,
}

#[derive(Clone, Copy, Debug)]
struct Count {
    value: f64,
    at: Instant,
}

impl Count {
    fn now(self, now: Instant) -> f64 {
        let age = now.saturating_duration_since(self.at).as_secs_f64();
        self.value * (-age / HALF_LIFE.as_secs_f64()).exp2()
    }
}

impl Demand {
    /// Counts `times` cold starts of one want.
    pub fn note(&mut self, want: &Want, times: usize, now: Instant) {
        let value = self.count(want, now) + times as f64;
        if self.wants.len() >= MOST && !self.wants.contains_key(want) {
            self.forget_least(now);
        }
        self.wants.insert(want.clone(), Count { value, at: now });
    }

    /// Returns how many cold starts of a want there were lately. For a steady rate this is the rate
    /// times the half-life over ln 2.
    pub fn count(&self, want: &Want, now: Instant) -> f64 {
        self.wants.get(want).map_or(0.0, |count| count.now(now))
    }

    /// Returns all remembered wants with their counts.
    pub fn all(&self, now: Instant) -> impl Iterator<Item = (&Want, f64)> {
        self.wants.iter().map(move |(want, count)| (want, count.now(now)))
    }

    /// Returns whether a want is remembered.
    pub fn knows(&self, want: &Want) -> bool {
        self.wants.contains_key(want)
    }

    /// Forgets wants that were not requested for a long time.
    pub fn fade(&mut self, now: Instant) {
        self.wants.retain(|_, count| count.now(now) >= FAINT);
    }

    fn forget_least(&mut self, now: Instant) {
        let least = self.wants.iter().min_by(|a, b| a.1.now(now).total_cmp(&b.1.now(now)));
        if let Some(want) = least.map(|(want, _)| want.clone()) {
            self.wants.remove(&want);
        }
    }
}

#[cfg(test)]
mod tests {
    use snowmelt_types::{Digest, Tenant};

    use super::*;
    use crate::import_cache::model::want::{Set, ZygoteScope};

    fn want(base: &str) -> Want {
        let scope = ZygoteScope { tenant: Tenant::default(), base: Digest::of(base) };
        Want { scope, set: Set::default() }
    }

    #[test]
    fn counts_halve_and_are_forgotten() {
        let mut demand = Demand::default();
        let now = Instant::now();
        demand.note(&want("a"), 4, now);
        assert_eq!(demand.count(&want("a"), now + HALF_LIFE), 2.0);
        demand.note(&want("a"), 1, now + HALF_LIFE);
        assert_eq!(demand.count(&want("a"), now + HALF_LIFE), 3.0);
        demand.fade(now + HALF_LIFE * 20);
        assert!(!demand.knows(&want("a")));
    }

    #[test]
    fn remembers_a_bounded_number() {
        let mut demand = Demand::default();
        let now = Instant::now();
        demand.note(&want("often"), 2, now);
        for other in 0..2 * MOST {
            demand.note(&want(&other.to_string()), 1, now);
        }
        assert!(demand.knows(&want("often")));
        assert_eq!(demand.all(now).count(), MOST);
    }
}
