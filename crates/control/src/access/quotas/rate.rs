//! A rate: how many of something may begin within a second.
//!
//! Invariant: of what begins one by one, never more than the limit begins at one instant, nor more
//! than twice the limit within any second. What is more than a second's worth by itself begins when
//! nothing has begun for as long as needed, and what follows waits until it is made up for.

use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_secs(1);

/// The time at which everything that has begun is made up for.
#[derive(Debug, Default)]
pub(super) struct Rate {
    even_at: Option<Instant>,
}

impl Rate {
    /// Counts `count` that begin now.
    ///
    /// # Errors
    /// The time after which they may begin.
    pub fn take(&mut self, limit: u64, count: u64, now: Instant) -> Result<(), Duration> {
        let Some(each) = WINDOW.as_nanos().checked_div(limit.into()) else { return Err(WINDOW) };
        let behind = self.behind(now);
        let added = each.saturating_mul(count.into());
        let added = Duration::from_nanos(u64::try_from(added).unwrap_or(u64::MAX >> 1));
        let after = behind.saturating_add(added);
        if after > WINDOW && !behind.is_zero() {
            return Err(after.saturating_sub(WINDOW).min(behind));
        }
        self.even_at = now.checked_add(after);
        Ok(())
    }

    /// Returns how many have begun of late, as far as they count still.
    pub fn used(&self, limit: u64, now: Instant) -> u64 {
        let used = self.behind(now).as_nanos().saturating_mul(limit.into());
        u64::try_from(used.div_ceil(WINDOW.as_nanos())).unwrap_or(u64::MAX)
    }

    fn behind(&self, now: Instant) -> Duration {
        self.even_at.map_or(Duration::ZERO, |even| even.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_the_limit_begin_at_once_and_then_one_by_one() {
        let begun = Instant::now();
        let mut rate = Rate::default();
        for _ in 0..5 {
            rate.take(5, 1, begun).unwrap();
        }
        assert_eq!(rate.used(5, begun), 5);
        let wait = rate.take(5, 1, begun).unwrap_err();
        assert_eq!(wait, Duration::from_millis(200));
        let later = begun + wait;
        rate.take(5, 1, later).unwrap();
        assert_eq!(rate.take(5, 1, later).unwrap_err(), Duration::from_millis(200));
        assert_eq!(rate.used(5, later + WINDOW), 0);
    }

    #[test]
    fn more_than_a_second_allows_is_made_up_for() {
        let begun = Instant::now();
        let mut rate = Rate::default();
        rate.take(5, 10, begun).unwrap();
        assert_eq!(rate.take(5, 1, begun).unwrap_err(), Duration::from_millis(1200));
        assert_eq!(rate.take(5, 10, begun).unwrap_err(), Duration::from_secs(2));
        rate.take(5, 10, begun + Duration::from_secs(2)).unwrap();
        assert_eq!(Rate::default().take(0, 1, begun), Err(WINDOW), "a limit of 0 lets nothing in");
    }
}
