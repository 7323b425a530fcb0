//! The common part of hosts and services of a lab: a namespace with an address on the bridge, a
//! link, and one program.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde::Serialize;

use crate::folder::Folder;
use crate::parameters::LabLink;

/// The network of the machines (RFC 5737), which is not used by real hosts.
const NETWORK: [u8; 3] = [192, 0, 2];
/// The length of the network's prefix in bits.
pub(crate) const PREFIX: u8 = 24;

/// A network namespace of a lab with its program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// The number of the machine, from which its address follows.
    pub number: u32,
    /// The name: `host-1` and so on, `registry` or `store`.
    pub name: String,
    /// The file with the program's output.
    pub log: PathBuf,
    #[serde(skip)]
    pub(crate) link: LabLink,
    /// The folder for the records of the machine's process and faults.
    #[serde(skip)]
    pub(crate) folder: PathBuf,
    /// The file that the machine's namespace is mounted on.
    #[serde(skip)]
    pub(crate) namespace: PathBuf,
}

impl Machine {
    pub(crate) fn new(folder: &Folder, number: u32, name: String, link: LabLink) -> Self {
        let own = folder.run.join(&name);
        let log = own.join("log");
        let namespace = folder.namespace(&name);
        Self { number, name, log, link, folder: own, namespace }
    }

    /// The address of the machine.
    pub fn ip(&self) -> Ipv4Addr {
        address(self.number)
    }

    /// The link of the machine without faults.
    pub fn link(&self) -> LabLink {
        self.link
    }

    pub(crate) fn process_file(&self) -> PathBuf {
        self.folder.join("process")
    }

    pub(crate) fn faults_file(&self) -> PathBuf {
        self.folder.join("faults")
    }
}

/// The address of the machine with this number.
pub(crate) fn address(number: u32) -> Ipv4Addr {
    let [a, b, c] = NETWORK;
    Ipv4Addr::new(a, b, c, number as u8)
}
