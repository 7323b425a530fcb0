//! The faults of hosts and services, and the record of those that are not healed.

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::{Result, folder};

/// A fault of a host or a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Its program is killed, without notice to other hosts.
    Kill,
    /// All of its processes are stopped; the kernel still accepts connections for them.
    Freeze,
    /// Its link is down.
    Unplug,
    /// Its link has a hundredth of its rate.
    Slow,
    /// It and the other hosts cannot reach each other; control is still reachable.
    Partition,
    /// What it sends to other hosts and to control is damaged on its way.
    Corrupt,
    /// The file system of its persistent data is full.
    DiskFull,
    /// Its wall clock is an hour ahead.
    ClockAhead,
    /// Its wall clock is an hour behind.
    ClockBehind,
}

impl Fault {
    /// Whether a registry or an S3 server can have it.
    pub(crate) fn is_of_services(self) -> bool {
        !matches!(self, Self::Partition | Self::Corrupt | Self::DiskFull)
    }

    /// Whether it is one of its wall clock, of which a machine has one at most.
    pub(crate) fn is_of_clock(self) -> bool {
        matches!(self, Self::ClockAhead | Self::ClockBehind)
    }

    /// Whether it is over when its program is.
    pub(crate) fn is_of_processes(self) -> bool {
        self == Self::Freeze || self.is_of_clock()
    }
}

/// The faults of a machine that are not healed.
pub(crate) fn of(machine: &Machine) -> Result<Vec<Fault>> {
    Ok(folder::read(&machine.faults_file())?.unwrap_or_default())
}

/// Records the faults of a machine.
pub(crate) fn record(machine: &Machine, faults: &[Fault]) -> Result<()> {
    folder::write(&machine.faults_file(), &faults)
}
