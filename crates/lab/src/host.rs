//! A host of a lab: its addresses and folders, and the program that it runs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use serde::Serialize;
use snowmelt_types::ByteSize;

use crate::folder::Folder;
use crate::machine::{Machine, address};
use crate::plan::Plan;
use crate::service::Registry;

/// The port of agents and control.
pub(crate) const PORT: u16 = 7070;

/// The address of a host in its lab.
pub type Address = SocketAddr;

/// A program that starts and ends hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Provider {
    /// Its path.
    pub program: PathBuf,
    /// Hosts that there are at least.
    pub least: u32,
    /// Hosts that there are at most.
    pub most: u32,
}

/// The parameters of a host's program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Host {
    /// Its name, link and folders; the first one is control.
    #[serde(flatten)]
    pub machine: Machine,
    /// The address of its agent; of the first host: where other hosts join.
    pub address: Address,
    /// The address at which control accepts hosts: that of the first host.
    pub control: Address,
    /// The file with the lab's token.
    pub token_file: PathBuf,
    /// What control starts and ends hosts with, if it does.
    pub provider: Option<Provider>,
    /// The socket of control.
    pub socket: PathBuf,
    /// The folder of its persistent data.
    pub state: PathBuf,
    /// The folder of its runtime data.
    pub run: PathBuf,
    /// The limit of memory for functions.
    pub memory: ByteSize,
    /// The size of the file system of its persistent data; that of the machine if none.
    pub disk: Option<ByteSize>,
    /// The certificate of the lab's registry, if it has one.
    pub ca_file: Option<PathBuf>,
}

impl Host {
    pub(crate) fn new(folder: &Folder, number: u32, plan: &Plan) -> Self {
        let machine = Machine::new(folder, number, format!("host-{number}"), plan.link);
        let is_control_alone = plan.control_only && number == 1;
        Self {
            address: (address(number), PORT).into(),
            control: (address(1), PORT).into(),
            token_file: folder.token_file(),
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
            ca_file: plan.registry.is_some().then(|| Registry::certificate(folder)),
            machine,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.machine.name
    }

    /// Whether it is the host with the gateway, which also runs functions unless it is control alone.
    pub fn is_control(&self) -> bool {
        self.machine.number == 1
    }
}

/// The program of a host. The command line provides it: it is its own binary.
pub trait Program {
    /// A command that serves as this host in the foreground.
    fn command(&self, host: &Host) -> Command;
}

impl<F: Fn(&Host) -> Command> Program for F {
    fn command(&self, host: &Host) -> Command {
        self(host)
    }
}
