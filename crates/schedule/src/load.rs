//! How much of the cores of hosts is taken.

use crate::host::Host;

/// The cores of a host and what is taken of them, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Load {
    cores: u64,
    taken: u64,
}

/// The core that a call gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Core {
    /// That of another call, whose instance it shares.
    Shared,
    /// One of a host with this load.
    Own(Load),
}

impl Load {
    pub fn of(host: &Host) -> Self {
        Self { cores: host.room.cpu_millis.max(1), taken: host.cpu_millis }
    }

    /// Load of the cores in thousandths, if they do not suffice for so many thousandths more; else 0.
    pub fn over(self, more: u32) -> u64 {
        let taken = self.taken + u64::from(more);
        if taken <= self.cores { 0 } else { taken * 1000 / self.cores }
    }
}

impl Core {
    /// As [`Load::over`].
    pub fn over(self, more: u32) -> u64 {
        match self {
            Self::Shared => 0,
            Self::Own(load) => load.over(more),
        }
    }
}
