//! The load of a host's cores.

use super::host::HostUsage;

/// The cores of a host and what is taken of them, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CoreLoad {
    cores: u64,
    taken: u64,
}

/// The core that a call gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Core {
    /// The core of another call, whose instance this call shares.
    Shared,
    /// A core of its own on a host with this load.
    Own(CoreLoad),
}

impl CoreLoad {
    pub fn of(host: &HostUsage) -> Self {
        Self { cores: host.room.cpu_millis.max(1), taken: host.cpu_millis }
    }

    /// The load of the cores in thousandths if they do not suffice for `more` further thousandths
    /// of a core, else 0.
    pub fn over(self, more: u32) -> u64 {
        let taken = self.taken + u64::from(more);
        if taken <= self.cores { 0 } else { taken * 1000 / self.cores }
    }
}

impl Core {
    /// The load of the cores in thousandths if they do not suffice for `more` further thousandths
    /// of a core, else 0. A shared core always suffices.
    pub fn over(self, more: u32) -> u64 {
        match self {
            Self::Shared => 0,
            Self::Own(load) => load.over(more),
        }
    }
}
