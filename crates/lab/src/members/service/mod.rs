//! A registry of images and an S3 server on the bridge of a lab, each behind a link of its own.
//!
//! Boundary: both are programs of others, which the user installs; this module finds, configures
//! and starts them. Their data is removed with the lab.

mod registry;
mod store;

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Serialize;

use super::machine::Machine;
use crate::folder::{self, Folder};
use crate::parameters::{MAX_HOSTS, ServiceKind, ServicePlan};
use crate::{Error, Result};

pub(crate) use registry::LabRegistry;

use store::LabStore;

/// The limit on the time in which a service answers one request of the lab.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A service of a lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Service {
    /// The name, link and folders of the service.
    #[serde(flatten)]
    pub machine: Machine,
    /// The kind of the service.
    pub kind: ServiceKind,
    /// The address at which the service answers.
    pub address: SocketAddr,
    /// The program of the service.
    pub program: PathBuf,
    /// The folder of the service's data.
    pub data: PathBuf,
    /// The variables with which clients in the lab find the service.
    #[serde(skip)]
    pub variables: Vec<(&'static str, String)>,
}

impl Service {
    pub(crate) fn new(folder: &Folder, kind: ServiceKind, plan: &ServicePlan) -> Self {
        let machine = Machine::new(folder, number(kind), kind.name().to_owned(), plan.link);
        let port = match kind {
            ServiceKind::Registry => registry::PORT,
            ServiceKind::Store => store::PORT,
        };
        let address = (machine.ip(), port).into();
        let variables = match kind {
            ServiceKind::Registry => LabRegistry::variables(folder, address),
            ServiceKind::Store => LabStore::variables(address),
        };
        let program = plan.program.clone();
        let data = folder.state.join(kind.name());
        Self { machine, kind, address, program, data, variables }
    }

    /// Writes the service's configuration and returns the command that serves in the foreground.
    pub(crate) fn command(&self) -> Result<Command> {
        folder::make(&self.machine.folder, 0o711)?;
        folder::make(&self.data, 0o700)?;
        match self.kind {
            ServiceKind::Registry => registry::command(self),
            ServiceKind::Store => store::command(self),
        }
    }

    /// Whether the service can be used. Called in the service's namespace.
    pub(crate) fn is_ready(&self) -> bool {
        match self.kind {
            ServiceKind::Registry => {
                TcpStream::connect_timeout(&self.address, ANSWER_TIMEOUT).is_ok()
            }
            ServiceKind::Store => store::is_ready(self).unwrap_or(false),
        }
    }
}

/// The number of a service: above those of hosts.
const fn number(kind: ServiceKind) -> u32 {
    match kind {
        ServiceKind::Registry => MAX_HOSTS + 1,
        ServiceKind::Store => MAX_HOSTS + 2,
    }
}

/// The path of a service's program.
pub(crate) fn find(kind: ServiceKind, program: &Path) -> Result<PathBuf> {
    let missing = || Error::Program { kind, program: program.to_owned() };
    on_path(program).ok_or_else(missing)
}

/// Whether a service has this name.
pub(crate) fn is_name(name: &OsStr) -> bool {
    [ServiceKind::Registry, ServiceKind::Store].iter().any(|kind| name == kind.name())
}

fn on_path(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return fs::canonicalize(program).ok();
    }
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// The status and the answer of one HTTP request.
fn request(address: SocketAddr, method: &str, path: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_TIMEOUT)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let head = format!("{method} {path} HTTP/1.0\r\nhost: {address}\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or(io::ErrorKind::InvalidData)?, answer))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(Error::folder(path))
}
