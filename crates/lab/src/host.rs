//! A host of a lab: its name, its addresses and folders, and the program that it runs.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;

use serde::Serialize;
use snowmelt_types::ByteSize;

use crate::folder::Folder;

/// The port of agents and control.
const PORT: u16 = 7070;
/// The network of the hosts (RFC 5737), which is not used by real hosts.
const NETWORK: [u8; 3] = [192, 0, 2];
/// The length of its prefix.
pub(crate) const PREFIX: u8 = 24;

/// The address of a host in its lab.
pub type Address = SocketAddr;

/// The parameters of a host's program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Host {
    /// From 1; the first one is control.
    pub number: u32,
    /// `host-1` and so on.
    pub name: String,
    /// The address of its agent; of the first host: where other hosts join.
    pub address: Address,
    /// The address at which control accepts hosts: that of the first host.
    pub control: Address,
    /// The file with the lab's token.
    pub token_file: PathBuf,
    /// The socket of control.
    pub socket: PathBuf,
    /// The folder of its persistent data.
    pub state: PathBuf,
    /// The folder of its runtime data.
    pub run: PathBuf,
    /// The file with its program's output.
    pub log: PathBuf,
    /// The limit of memory for functions.
    pub memory: ByteSize,
    /// The folder for the records of its process and faults.
    pub(crate) folder: PathBuf,
    /// The file that its namespace is mounted on.
    pub(crate) namespace: PathBuf,
}

impl Host {
    pub(crate) fn new(folder: &Folder, number: u32, memory: ByteSize) -> Self {
        let name = format!("host-{number}");
        let own = folder.run.join(&name);
        Self {
            number,
            address: (address(number), PORT).into(),
            control: (address(1), PORT).into(),
            token_file: folder.token_file(),
            socket: folder.socket(),
            state: folder.state.join(&name),
            run: own.join("run"),
            log: own.join("log"),
            memory,
            namespace: folder.namespace(&name),
            folder: own,
            name,
        }
    }

    /// Whether it is the host with the gateway, which also runs functions unless it is control alone.
    pub fn is_control(&self) -> bool {
        self.number == 1
    }

    /// Its address without the port.
    pub(crate) fn ip(&self) -> Ipv4Addr {
        address(self.number)
    }

    pub(crate) fn process_file(&self) -> PathBuf {
        self.folder.join("process")
    }

    pub(crate) fn faults_file(&self) -> PathBuf {
        self.folder.join("faults")
    }
}

fn address(number: u32) -> Ipv4Addr {
    let [a, b, c] = NETWORK;
    Ipv4Addr::new(a, b, c, number as u8)
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
