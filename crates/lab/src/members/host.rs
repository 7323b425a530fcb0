//! A host of a lab: its addresses and folders, and the program that it runs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use serde::Serialize;
use snowmelt_types::ByteSize;

use super::machine::{Machine, address};
use super::service::LabRegistry;
use crate::folder::Folder;
use crate::parameters::LabPlan;

/// The port of agents and control.
pub(crate) const PORT: u16 = 7070;

/// The address of a host in its lab.
pub type Address = SocketAddr;

/// A program that starts and ends hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Provider {
    /// The path of the program.
    pub program: PathBuf,
    /// The least number of hosts.
    pub least: u32,
    /// The greatest number of hosts.
    pub most: u32,
}

/// The parameters of a host's program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LabHost {
    /// The name, link and folders of the host. The first host is control.
    #[serde(flatten)]
    pub machine: Machine,
    /// The address of the host's agent; for the first host, the address at which other hosts join.
    pub address: Address,
    /// The address at which control accepts hosts, which is that of the first host.
    pub control: Address,
    /// The file for the token with which the host joins, which the host waits for.
    pub join_file: PathBuf,
    /// The program with which control starts and ends hosts. `None` if it does not.
    pub provider: Option<Provider>,
    /// The socket of control.
    pub socket: PathBuf,
    /// The folder of the host's persistent data.
    pub state: PathBuf,
    /// The folder of the host's runtime data.
    pub run: PathBuf,
    /// The limit of memory for functions.
    pub memory: ByteSize,
    /// The size of the file system of the host's persistent data. `None` for the machine's own.
    pub disk: Option<ByteSize>,
    /// The certificate of the lab's registry. `None` without a registry.
    pub ca_file: Option<PathBuf>,
}

impl LabHost {
    pub(crate) fn new(folder: &Folder, number: u32, plan: &LabPlan) -> Self {
        let machine = Machine::new(folder, number, format!("host-{number}"), plan.link);
        let is_control_alone = plan.control_only && number == 1;
        Self {
            address: (address(number), PORT).into(),
            control: (address(1), PORT).into(),
            join_file: machine.folder.join("join"),
            provider: plan.pool.as_ref().filter(|_| number == 1).map(|pool| Provider {
                program: folder.provider(),
                least: pool.started,
                most: plan.hosts,
            }),
            socket: folder.socket(),
            state: folder.state.join(&machine.name),
            run: machine.folder.join("run"),
            memory: if is_control_alone { ByteSize(0) } else { plan.memory },
            disk: plan.disk,
            ca_file: plan.registry.is_some().then(|| LabRegistry::certificate(folder)),
            machine,
        }
    }

    /// The name of the host.
    pub fn name(&self) -> &str {
        &self.machine.name
    }

    /// Whether the host is the one with the gateway. It also runs functions unless it is control
    /// alone.
    pub fn is_control(&self) -> bool {
        self.machine.number == 1
    }
}

/// The program of a host. The command line provides it: its own binary.
pub trait LabProgram {
    /// A command that serves as this host in the foreground.
    fn command(&self, host: &LabHost) -> Command;
}

impl<F: Fn(&LabHost) -> Command> LabProgram for F {
    fn command(&self, host: &LabHost) -> Command {
        self(host)
    }
}
