//! How fast other hosts and the registry send, and the rate to which children hold this host.
//!
//! Boundary: the caller says what time it is, so all of this can be tested without waiting.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// The time of sending after which earlier measurements count half.
const HALF_LIFE: Duration = Duration::from_secs(10);

/// A source that sends for longer is measured in parts of this length.
const PART: Duration = Duration::from_millis(250);

/// For how long the best rate of the link is remembered.
const REMEMBERED: Duration = Duration::from_secs(60);

/// A rate of the link is the mean over at least this time.
const WINDOW: Duration = Duration::from_secs(1);

/// How much faster another source is, if a parent is to be left for it.
const BETTER: f64 = 1.5;

/// The rate of a source while it sends: waiting for its own source does not count.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// The number of pieces that are being sent.
    active: usize,
    since: Option<Instant>,
    bytes: u64,
    /// Sums of bytes and time, of which older parts count less.
    sent: f64,
    seconds: f64,
}

impl Meter {
    /// Notes that a piece begins.
    pub fn begin(&mut self, now: Instant) {
        self.active += 1;
        self.since.get_or_insert(now);
    }

    /// Counts bytes of a piece that have arrived.
    pub fn add(&mut self, bytes: u64, now: Instant) {
        self.bytes += bytes;
        if self.since.is_some_and(|since| now.duration_since(since) >= PART) {
            self.close(now);
        }
    }

    /// Notes that a piece is over, whole or not.
    pub fn end(&mut self, now: Instant) {
        self.active = self.active.saturating_sub(1);
        if self.active == 0 {
            self.close(now);
            self.since = None;
        }
    }

    /// Returns the rate in bytes a second, once the source has sent for `proven` lately.
    pub fn rate(&self, proven: Duration) -> Option<f64> {
        (self.seconds >= proven.as_secs_f64() && self.seconds > 0.0)
            .then(|| self.sent / self.seconds)
    }

    /// Forgets what was measured.
    pub fn forget(&mut self) {
        (self.sent, self.seconds) = (0.0, 0.0);
    }

    fn close(&mut self, now: Instant) {
        let Some(since) = self.since.replace(now) else { return };
        let seconds = now.duration_since(since).as_secs_f64();
        let kept = 0.5_f64.powf(seconds / HALF_LIFE.as_secs_f64());
        self.sent = self.sent * kept + std::mem::take(&mut self.bytes) as f64;
        self.seconds = self.seconds * kept + seconds;
    }
}

/// The rate of this host's link: the best one of the last minute, of all sources together.
#[derive(Debug, Default)]
pub(super) struct LinkRate {
    window: Option<(Instant, u64)>,
    /// Ends of windows with their rates. Those that a later rate has exceeded are left out.
    best: VecDeque<(Instant, f64)>,
}

impl LinkRate {
    /// Counts bytes that have arrived.
    pub fn add(&mut self, bytes: u64, now: Instant) {
        let (since, sum) = self.window.get_or_insert((now, 0));
        *sum += bytes;
        let took = now.duration_since(*since);
        if took >= WINDOW {
            let rate = *sum as f64 / took.as_secs_f64();
            self.window = Some((now, 0));
            while self.best.back().is_some_and(|(_, before)| *before <= rate) {
                self.best.pop_back();
            }
            self.best.push_back((now, rate));
        }
    }

    /// Returns the best rate, in bytes a second.
    pub fn best(&mut self, now: Instant) -> Option<f64> {
        while self.best.front().is_some_and(|(at, _)| now.duration_since(*at) > REMEMBERED) {
            self.best.pop_front();
        }
        self.best.front().map(|(_, rate)| *rate)
    }
}

/// Returns whether a parent that sends at `rate` is to be left for another source: it gives less
/// than half of its share of the link, and the other source is better, or its rate is not known.
pub(super) fn is_slow(rate: f64, share: f64, other: Option<f64>) -> bool {
    rate < share / 2.0 && other.is_none_or(|other| other > rate * BETTER)
}

/// A limit of bytes a second.
#[derive(Debug)]
pub(super) struct Bucket {
    rate: u64,
    /// The time at which all bytes that were taken are paid for.
    paid: Option<Instant>,
}

/// The time whose bytes may be sent at once after a pause.
const BURST: Duration = Duration::from_millis(100);

impl Bucket {
    pub fn new(rate: u64) -> Self {
        Self { rate, paid: None }
    }

    /// Takes bytes; returns the time until which to wait before they are sent.
    pub fn take(&mut self, bytes: u64, now: Instant) -> Instant {
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let begin = self.paid.map_or(earliest, |paid| paid.max(earliest));
        let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate.max(1));
        let takes = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        self.paid = Some(begin + takes);
        begin.max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn milliseconds(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// Sends pieces of 1 MiB, each within `takes` and with a pause behind it.
    fn send(meter: &mut Meter, now: &mut Instant, pieces: usize, takes: u64, pause: u64) {
        for _ in 0..pieces {
            meter.begin(*now);
            for _ in 0..4 {
                *now += milliseconds(takes / 4);
                meter.add(MIB / 4, *now);
            }
            meter.end(*now);
            *now += milliseconds(pause);
        }
    }

    #[test]
    fn a_source_is_measured_while_it_sends_and_not_while_it_waits() {
        let mut meter = Meter::default();
        let mut now = Instant::now();
        assert_eq!(meter.rate(Duration::ZERO), None);
        send(&mut meter, &mut now, 4, 1000, 60_000);
        assert_eq!(meter.rate(milliseconds(5000)), None, "that is not long enough");
        let rate = meter.rate(milliseconds(3000)).unwrap();
        assert!((rate - MIB as f64).abs() < 1.0, "{rate}");
        // Its link has become slower: what was before is forgotten as it goes on.
        send(&mut meter, &mut now, 10, 4000, 0);
        let rate = meter.rate(milliseconds(5000)).unwrap();
        assert!((0.25..0.4).contains(&(rate / MIB as f64)), "{rate}");
        meter.forget();
        assert_eq!(meter.rate(milliseconds(1)), None);
    }

    #[test]
    fn pieces_at_the_same_time_share_it() {
        let mut meter = Meter::default();
        let mut now = Instant::now();
        for _ in 0..10 {
            meter.begin(now);
            meter.begin(now);
            now += milliseconds(1000);
            meter.add(MIB, now);
            meter.end(now);
            meter.add(MIB, now);
            meter.end(now);
            // One that breaks off has sent nothing in its time.
            meter.begin(now);
            meter.end(now);
        }
        let rate = meter.rate(milliseconds(5000)).unwrap();
        assert!((rate / (2 * MIB) as f64 - 1.0).abs() < 0.01, "{rate}");
    }

    #[test]
    fn the_best_rate_of_the_link_is_known_for_a_minute() {
        let mut link = LinkRate::default();
        let mut now = Instant::now();
        assert_eq!(link.best(now), None);
        let mut receive = |bytes: u64, seconds: u64, link: &mut LinkRate| {
            for _ in 0..seconds * 10 {
                link.add(bytes / 10, now);
                now += milliseconds(100);
            }
            link.best(now).unwrap().round() as u64 / 1000
        };
        assert!((9_000..12_000).contains(&receive(10_000_000, 5, &mut link)));
        assert!((9_000..12_000).contains(&receive(1_000_000, 50, &mut link)));
        assert!((900..1_200).contains(&receive(1_000_000, 20, &mut link)));
    }

    #[test]
    fn a_parent_is_slow_only_if_another_source_may_be_better() {
        // Two parents, a link of 100: each is to give 50, and at least 25.
        assert!(!is_slow(30.0, 50.0, Some(100.0)));
        assert!(is_slow(20.0, 50.0, Some(100.0)));
        assert!(is_slow(20.0, 50.0, None), "nobody knows");
        // All are as slow: leaving it would only move the load.
        assert!(!is_slow(20.0, 50.0, Some(25.0)));
    }

    #[test]
    fn a_limit_holds_over_time_and_a_pause_earns_little() {
        let mut bucket = Bucket::new(MIB);
        let start = Instant::now();
        let mut now = start;
        for _ in 0..10 {
            now = bucket.take(MIB, now);
        }
        // The tenth may be sent when nine are paid for.
        let took = now.duration_since(start);
        assert!((8_900..=9_000).contains(&took.as_millis()), "{took:?}");
        now += Duration::from_secs(3600);
        assert_eq!(bucket.take(MIB, now), now);
        let next = bucket.take(MIB, now).duration_since(now);
        assert!((900..=1000).contains(&next.as_millis()), "{next:?}");
        assert_eq!(Bucket::new(MIB).take(0, now), now);
    }
}
