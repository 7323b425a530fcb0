//! Hits and misses of the install cache, and its size.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use snowmelt_types::ByteSize;

/// Counters since the installer was opened, except for `bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstallCounts {
    /// The number of requested environments that existed.
    pub environment_hits: u64,
    /// The number of environments that this installer created.
    pub environment_misses: u64,
    /// The number of wheels that existed when an environment was created.
    pub wheel_hits: u64,
    /// The number of wheels that this installer unpacked.
    pub wheel_misses: u64,
    /// The size on disk of wheels and environments in bytes, without the resolver's cache.
    pub bytes: ByteSize,
}

/// The live counters of environments. Cheap to clone; all clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct EnvironmentCounters {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    environments: [AtomicU64; 2],
    wheels: [AtomicU64; 2],
    bytes: AtomicU64,
}

impl EnvironmentCounters {
    /// Counts a requested environment.
    pub(crate) fn environment(&self, made: bool) {
        self.inner.environments[usize::from(made)].fetch_add(1, Relaxed);
    }

    /// Counts a needed wheel.
    pub(crate) fn wheel(&self, made: bool) {
        self.inner.wheels[usize::from(made)].fetch_add(1, Relaxed);
    }

    /// Adds to the size of the store.
    pub(crate) fn add_bytes(&self, bytes: u64) {
        self.inner.bytes.fetch_add(bytes, Relaxed);
    }

    /// Sets the size of the store.
    pub(crate) fn set_bytes(&self, bytes: u64) {
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
