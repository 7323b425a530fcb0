//! The choice of the requests that are recorded as spans, and the counts of sent spans.
//!
//! Boundary: this crate marks spans ([`SPANS`]) and decides which requests are sampled. A higher
//! crate records and sends them. Without it nothing is recorded, and a marked span costs one check.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::RequestId;

/// The target of the spans that are exported. They have the level DEBUG, so the log of a server
/// does not contain them by default.
pub const SPANS: &str = "snowmelt::spans";

/// Number of possible values of the part of an identifier by which requests are sampled.
const RANDOM: u64 = 1 << 32;

static EXPORT: OnceLock<Export> = OnceLock::new();

/// The export of spans of this process.
#[derive(Debug)]
pub struct Export {
    sampler: Sampler,
    current_span: fn() -> Option<u64>,
    sent: AtomicU64,
    dropped: AtomicU64,
}

impl Export {
    /// Begins to record spans. `current_span` gives the recorded span that is current in this
    /// thread. A second call changes nothing.
    pub fn install(sampler: Sampler, current_span: fn() -> Option<u64>) -> &'static Self {
        let sent = AtomicU64::default();
        let dropped = AtomicU64::default();
        EXPORT.get_or_init(|| Self { sampler, current_span, sent, dropped })
    }

    /// The export of this process; `None` if spans are not recorded.
    pub fn installed() -> Option<&'static Self> {
        EXPORT.get()
    }

    /// Counts spans that a collector has accepted.
    pub fn count_sent(&self, spans: usize) {
        self.sent.fetch_add(spans as u64, Ordering::Relaxed);
    }

    /// Counts spans that were not sent.
    pub fn count_dropped(&self, spans: usize) {
        self.dropped.fetch_add(spans as u64, Ordering::Relaxed);
    }

    /// Spans that a collector has accepted, and spans that were not sent.
    pub fn counts(&self) -> [u64; 2] {
        [&self.sent, &self.dropped].map(|count| count.load(Ordering::Relaxed))
    }

    pub(super) fn current_span(&self) -> Option<u64> {
        (self.current_span)()
    }

    pub(super) fn samples(&self, id: RequestId, by_parent: Option<bool>) -> bool {
        self.sampler.samples(id, by_parent)
    }
}

/// The rule that decides which requests are recorded (`OTEL_TRACES_SAMPLER`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    /// The bound for the random part of an identifier: requests with a smaller part are recorded.
    below: u64,
    /// Whether the decision of the sender of a request applies, if there is one.
    is_parent_based: bool,
}

impl Default for Sampler {
    fn default() -> Self {
        Self { below: RANDOM, is_parent_based: true }
    }
}

impl Sampler {
    /// The sampler with this name and argument of the OpenTelemetry specification; `None` if it is
    /// not known, or if the argument is not a number from 0 to 1.
    pub fn parse(name: &str, argument: Option<&str>) -> Option<Self> {
        let (is_parent_based, own) = match name.strip_prefix("parentbased_") {
            Some(own) => (true, own),
            None => (false, name),
        };
        let ratio = match own {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => argument.map_or(Ok(1.0), str::parse::<f64>).ok()?,
            _ => return None,
        };
        let below = (0.0..=1.0).contains(&ratio).then_some((ratio * RANDOM as f64) as u64)?;
        Some(Self { below, is_parent_based })
    }

    /// Decides whether a request is recorded. Only the last bits of an identifier of Snowmelt are
    /// random: the others are a time and a counter (UUID, version 7), by which samplers of other
    /// libraries would choose.
    fn samples(self, id: RequestId, by_parent: Option<bool>) -> bool {
        match by_parent.filter(|_| self.is_parent_based) {
            Some(sampled) => sampled,
            None => (id.number() as u64) % RANDOM < self.below,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_applies_to_identifiers_that_begin_with_a_time() {
        let sampler = Sampler::parse("traceidratio", Some("0.25")).unwrap();
        let sampled = (0..4000).filter(|_| sampler.samples(RequestId::new(), None)).count();
        assert!((700..1300).contains(&sampled), "{sampled}");
    }

    #[test]
    fn only_a_sampler_based_on_parents_obeys_the_sender() {
        let id = RequestId::new();
        let by = |name: &str, sent| Sampler::parse(name, None).unwrap().samples(id, sent);
        assert!(by("always_on", Some(false)) && !by("always_off", Some(true)));
        assert!(!by("parentbased_always_on", Some(false)) && by("parentbased_always_on", None));
        assert!(by("parentbased_always_off", Some(true)) && !by("parentbased_always_off", None));
        assert!(Sampler::default().samples(id, None));
    }

    #[test]
    fn unknown_samplers_and_ratios_are_refused() {
        for (name, argument) in [("xray", None), ("traceidratio", Some("2")), ("", None)] {
            assert_eq!(Sampler::parse(name, argument), None, "{name}");
        }
    }
}
