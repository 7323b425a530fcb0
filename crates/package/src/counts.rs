//! How often the install cache had what was asked of it, and how much it holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use snowmelt_types::ByteSize;

/// Since the installer was opened, except for `bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstallCounts {
    /// Environments that were there when they were asked for.
    pub environment_hits: u64,
    /// Environments that this installer put together.
    pub environment_misses: u64,
    /// Wheels that were there when an environment was put together.
    pub wheel_hits: u64,
    /// Wheels that this installer unpacked.
    pub wheel_misses: u64,
    /// What wheels and environments take on disk, without the resolver's own cache.
    pub bytes: ByteSize,
}

/// The living counters. Cheap to clone; all clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    environments: [AtomicU64; 2],
    wheels: [AtomicU64; 2],
    bytes: AtomicU64,
}

impl Counts {
    /// One environment was asked for.
    pub(crate) fn environment(&self, made: bool) {
        self.inner.environments[usize::from(made)].fetch_add(1, Relaxed);
    }

    /// One wheel was needed.
    pub(crate) fn wheel(&self, made: bool) {
        self.inner.wheels[usize::from(made)].fetch_add(1, Relaxed);
    }

    /// The store holds so much more.
    pub(crate) fn grew(&self, bytes: u64) {
        self.inner.bytes.fetch_add(bytes, Relaxed);
    }

    /// The store was measured.
    pub(crate) fn holds(&self, bytes: u64) {
        self.inner.bytes.store(bytes, Relaxed);
    }

    pub(crate) fn read(&self) -> InstallCounts {
        let [environment_hits, environment_misses] =
            [0, 1].map(|made: usize| self.inner.environments[made].load(Relaxed));
        let [wheel_hits, wheel_misses] =
            [0, 1].map(|made: usize| self.inner.wheels[made].load(Relaxed));
        let bytes = ByteSize(self.inner.bytes.load(Relaxed));
        InstallCounts { environment_hits, environment_misses, wheel_hits, wheel_misses, bytes }
    }
}
