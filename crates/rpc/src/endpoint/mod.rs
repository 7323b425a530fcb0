//! The places at which servers listen.

mod tls_server;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::UnixStream;
use tokio::sync::mpsc;

pub use tls_server::TlsServer;

use crate::{Credential, Meant};

/// The place at which a server listens.
#[derive(Clone, Debug)]
pub enum Endpoint {
    /// A socket of this machine.
    Unix(Arc<PathBuf>),
    /// Another process of the cluster.
    Tcp(Arc<HostTarget>),
    /// The address of a server for clients of other hosts, over TLS.
    Tls(TlsServer),
    /// A server in this process.
    InProcess(InProcess),
}

impl Endpoint {
    /// Returns the process of the cluster; `None` for other servers.
    pub(crate) fn host(&self) -> Option<&HostTarget> {
        match self {
            Self::Tcp(target) => Some(target),
            Self::Unix(_) | Self::Tls(_) | Self::InProcess(_) => None,
        }
    }
}

/// A process of the cluster, and the means by which it is known.
#[derive(Clone, Debug)]
pub struct HostTarget {
    /// The address at which the process listens.
    pub address: SocketAddr,
    /// The process that is meant to be there.
    pub meant: Meant,
    /// The means of this process.
    pub credential: Credential,
}

/// Connects to a server of this process without a path in the file system.
#[derive(Clone, Debug)]
pub struct InProcess(pub(crate) mpsc::UnboundedSender<UnixStream>);

impl InProcess {
    /// Makes the two ends: for a client, and for a server to listen at.
    pub fn pair() -> (Self, mpsc::UnboundedReceiver<UnixStream>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Tcp(target) => write!(f, "{}", target.address),
            Self::Tls(server) => write!(f, "{server}"),
            Self::InProcess(_) => f.write_str("this process"),
        }
    }
}
