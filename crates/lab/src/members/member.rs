//! A host or a service of a lab: both have a name, an address and a link, and can be made to fail.

use super::host::{LabHost, LabProgram};
use super::machine::Machine;
use super::service::Service;
use crate::namespace::{self, Namespace};
use crate::process::{self, Process};
use crate::{Result, folder};

/// A host or a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabMember {
    /// A host.
    Host(LabHost),
    /// A registry or an S3 server.
    Service(Service),
}

impl LabMember {
    /// The name, address and link of the member.
    pub fn machine(&self) -> &Machine {
        match self {
            Self::Host(host) => &host.machine,
            Self::Service(service) => &service.machine,
        }
    }

    /// The host, if the member is one.
    pub fn host(&self) -> Option<&LabHost> {
        match self {
            Self::Host(host) => Some(host),
            Self::Service(_) => None,
        }
    }

    /// Starts the program of the member.
    pub(crate) fn start(&self, namespace: &Namespace, program: &impl LabProgram) -> Result<()> {
        let machine = self.machine();
        folder::make(&machine.folder, 0o711)?;
        let command = match self {
            Self::Host(host) => program.command(host),
            Self::Service(service) => service.command()?,
        };
        let process = process::start(command, namespace, &machine.log)?;
        folder::write(&machine.process_file(), &process)
    }

    /// Starts the program of the member unless it runs.
    pub(crate) fn start_again(&self, program: &impl LabProgram) -> Result<()> {
        match process_of(self.machine())? {
            Some(process) if process.is_alive() => Ok(()),
            _ => self.start(&namespace::open(&self.machine().namespace)?, program),
        }
    }
}

/// The process that was last started for a machine.
pub(crate) fn process_of(machine: &Machine) -> Result<Option<Process>> {
    folder::read(&machine.process_file())
}
