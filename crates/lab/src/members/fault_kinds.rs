//! The faults of hosts and services, and the record of the faults that are not healed.

use serde::{Deserialize, Serialize};

use super::machine::Machine;
use crate::{Result, folder};

/// A fault of a host or a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The program is killed, without notice to other hosts.
    Kill,
    /// All processes are stopped; the kernel still accepts connections for them.
    Freeze,
    /// The link is down.
    Unplug,
    /// The link has a hundredth of its rate.
    Slow,
    /// The host and the other hosts cannot reach each other; control is still reachable.
    Partition,
    /// Packets to other hosts and to control are damaged on their way.
    Corrupt,
    /// The file system of its persistent data is full.
    DiskFull,
    /// The wall clock is an hour ahead.
    ClockAhead,
    /// The wall clock is an hour behind.
    ClockBehind,
}

impl Fault {
    /// Whether a registry or an S3 server can have the fault.
    pub(crate) fn is_of_services(self) -> bool {
        !matches!(self, Self::Partition | Self::Corrupt | Self::DiskFull)
    }

    /// Whether the fault is one of the wall clock, of which a machine has one at most.
    pub(crate) fn is_of_clock(self) -> bool {
        matches!(self, Self::ClockAhead | Self::ClockBehind)
    }

    /// Whether the fault is over when the program has ended.
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
