//! What a node tells of itself: who is alive, how the caches do, and how long starts take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::imports::{Found, ImportFigures};
use crate::pool::PoolFigures;

/// Upper bounds of the histograms of starts, in microseconds; what is above them all counts too.
pub const START_BOUNDS_US: [u64; 12] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 500_000, 2_000_000, 10_000_000];

/// Where an instance came from, the fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// A seat on an instance that has calls already, or is started for them.
    Shared,
    /// The handler cache: an idle instance, resumed.
    Idle,
    /// An instance that was started ahead.
    Parked,
    /// The import cache: forked from a zygote with all that the function declares.
    Zygote,
    /// Forked from a zygote with a part of it.
    PartialZygote,
    /// Forked from a bare interpreter.
    BareZygote,
    /// Executed.
    Program,
}

impl From<Found> for Start {
    fn from(found: Found) -> Self {
        match found {
            Found::All => Self::Zygote,
            Found::Part => Self::PartialZygote,
            Found::Nothing => Self::BareZygote,
        }
    }
}

impl Start {
    /// All there are.
    pub const ALL: [Self; 7] = [
        Self::Shared,
        Self::Idle,
        Self::Parked,
        Self::Zygote,
        Self::PartialZygote,
        Self::BareZygote,
        Self::Program,
    ];

    /// Whether a sandbox was made for it.
    pub fn is_cold(self) -> bool {
        !matches!(self, Self::Shared | Self::Idle | Self::Parked)
    }

    /// Its name in figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Idle => "idle",
            Self::Parked => "parked",
            Self::Zygote => "zygote",
            Self::PartialZygote => "partial-zygote",
            Self::BareZygote => "bare-zygote",
            Self::Program => "program",
        }
    }
}

/// How long starts took, from the request to the instance, by kind.
#[derive(Debug, Default)]
pub(crate) struct Starts([Histogram; Start::ALL.len()]);

#[derive(Debug, Default)]
struct Histogram {
    buckets: [AtomicU64; START_BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Starts {
    pub fn observe(&self, start: Start, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let histogram = &self.0[start as usize];
        let bucket = START_BOUNDS_US.partition_point(|bound| *bound < us);
        histogram.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        histogram.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    pub fn figures(&self) -> Vec<StartFigures> {
        let of = |start: Start| {
            let histogram = &self.0[start as usize];
            let read = |bucket: &AtomicU64| bucket.load(Ordering::Relaxed);
            StartFigures {
                kind: start,
                buckets: histogram.buckets.iter().map(read).collect(),
                sum_us: read(&histogram.sum_us),
            }
        };
        Start::ALL.into_iter().map(of).collect()
    }
}

/// Starts of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StartFigures {
    /// Which.
    pub kind: Start,
    /// Starts of at most each of [`START_BOUNDS_US`] and above the one before; then the rest.
    pub buckets: Vec<u64>,
    /// All of them together, in microseconds.
    pub sum_us: u64,
}

impl StartFigures {
    /// How many there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// The install cache: packages that are unpacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstallFigures {
    /// Environments that were there.
    pub environment_hits: u64,
    /// Environments that were put together.
    pub environment_misses: u64,
    /// Wheels that were there.
    pub wheel_hits: u64,
    /// Wheels that were unpacked.
    pub wheel_misses: u64,
    /// Bytes on disk.
    pub bytes: u64,
}

/// All figures of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeFigures {
    /// Instances that are leased.
    pub busy: u32,
    /// Instances that were started ahead and wait.
    pub parked: u32,
    /// Memory of those, in bytes.
    pub parked_bytes: u64,
    /// The handler cache: paused instances.
    pub handlers: PoolFigures,
    /// Query workers: busy.
    pub busy_workers: u32,
    /// Query workers: idle.
    pub workers: PoolFigures,
    /// The install cache.
    pub installs: InstallFigures,
    /// The import cache.
    pub imports: ImportFigures,
    /// Starts by kind.
    pub starts: Vec<StartFigures>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_counts_in_the_bucket_that_holds_it() {
        let starts = Starts::default();
        for us in [100, 101, 20_000_000] {
            starts.observe(Start::Zygote, Duration::from_micros(us));
        }
        let figures = &starts.figures()[Start::Zygote as usize];
        assert_eq!((figures.kind, figures.count(), figures.sum_us), (Start::Zygote, 3, 20_000_201));
        assert_eq!((figures.buckets[0], figures.buckets[1]), (1, 1));
        assert_eq!(figures.buckets.last(), Some(&1));
    }
}
