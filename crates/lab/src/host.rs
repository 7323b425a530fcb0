//! A host of a lab: its name, its places and the program that it runs.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;

use serde::Serialize;
use snowmelt_types::ByteSize;

use crate::folder::Folder;

/// Where agents and control listen.
const PORT: u16 = 7070;
/// The network between hosts (RFC 5737): nobody outside can have an address of it.
const NETWORK: [u8; 3] = [192, 0, 2];
/// Bits of its addresses that all hosts share.
pub(crate) const PREFIX: u8 = 24;

/// Where a host is reached in its lab.
pub type Address = SocketAddr;

/// What a host's program needs to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Host {
    /// From 1; the first one is control.
    pub number: u32,
    /// `host-1` and so on.
    pub name: String,
    /// Where its agent listens; that of the first host where hosts join.
    pub address: Address,
    /// Where control listens for hosts; the first host's own address.
    pub control: Address,
    /// The secret of the lab.
    pub token_file: PathBuf,
    /// The socket of control.
    pub socket: PathBuf,
    /// What it keeps.
    pub state: PathBuf,
    /// What its running processes hold.
    pub run: PathBuf,
    /// What its program writes.
    pub log: PathBuf,
    /// The most memory that it gives to functions.
    pub memory: ByteSize,
    /// For what is known of it: process and faults.
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

    /// Whether it is the one with the gateway, which also runs functions.
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

/// How the program of a host is started. The command line knows: it is its own binary.
pub trait Program {
    /// A command that serves as this host in the foreground.
    fn command(&self, host: &Host) -> Command;
}

impl<F: Fn(&Host) -> Command> Program for F {
    fn command(&self, host: &Host) -> Command {
        self(host)
    }
}
