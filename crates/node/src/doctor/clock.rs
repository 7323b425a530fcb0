//! The check of the clock: timeouts use the monotonic clock, signatures of S3 and log lines the
//! wall clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{Check, CheckStatus};
use crate::times::CLOCK_SAMPLE;

/// The seconds since 1970 from 2025-01-01 to 2100-01-01: outside of this range the wall clock is
/// not set.
const SANE: std::ops::Range<u64> = 1_735_689_600..4_102_444_800;

/// The most by which wall time and monotonic time may differ over one sample: more means that the
/// wall clock is being moved.
const MAX_APART: Duration = Duration::from_secs(1);

pub(super) fn check() -> Check {
    let needed = "a year that can be, and wall time at the pace of monotonic time";
    let row = |status, found: String| {
        Check::new("clock", status, found, needed, "timedatectl set-ntp true")
    };
    let monotonic = Instant::now();
    let wall = SystemTime::now();
    let seconds = wall.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    if !SANE.contains(&seconds) {
        return row(
            CheckStatus::Fail,
            format!("{seconds} s since 1970, about the year {}", year(seconds)),
        );
    }
    std::thread::sleep(CLOCK_SAMPLE);
    let passed = (monotonic.elapsed(), wall.elapsed().unwrap_or_default());
    if passed.0.abs_diff(passed.1) > MAX_APART {
        return row(CheckStatus::Warn, "wall time jumped while it was looked at".to_owned());
    }
    row(CheckStatus::Ok, format!("the year {}, steady", year(seconds)))
}

/// Returns the Gregorian year of a time in seconds since 1970, exact enough for the years in which
/// a clock may be.
fn year(seconds: u64) -> u64 {
    const SECONDS_PER_YEAR: f64 = 365.2425 * 86_400.0;
    1970 + (seconds as f64 / SECONDS_PER_YEAR) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn years_are_right_in_their_middle() {
        assert_eq!([0, 1_782_000_000, 4_086_000_000].map(year), [1970, 2026, 2099]);
    }
}
