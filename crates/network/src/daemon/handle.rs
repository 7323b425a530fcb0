//! Networks by whoever makes them: this process, or a daemon where this process has not the rights.

use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::client::{DaemonNamespace, DaemonNetwork, NetworkDaemon};
use super::message::NetworkReport;
use crate::{
    Address, ConfiguredNamespace, Counters, JobNetwork, JobSpec, Listener, Networks, Result,
    TracedRoute, Unsent,
};

/// All job networks of a node. Calls block.
#[derive(Debug)]
pub enum HostNetworks {
    /// Networks of this process.
    Own(Arc<Networks>),
    /// Networks of a daemon.
    Daemon(NetworkDaemon),
}

/// A namespace that is configured for a job that need not exist yet.
#[derive(Debug)]
pub enum NamespaceHandle {
    /// A namespace configured by this process.
    Own(Arc<Networks>, ConfiguredNamespace),
    /// A namespace configured by a daemon.
    Daemon(DaemonNamespace),
}

/// The network of a job on this host; removed when dropped.
#[derive(Debug)]
pub enum NetworkHandle {
    /// A network of this process.
    Own(Box<JobNetwork>),
    /// A network of a daemon.
    Daemon(Box<DaemonNetwork>),
}

impl HostNetworks {
    /// The table of the functions' entries, as [`Networks::table`].
    pub fn table(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Own(networks) => networks.table(),
            Self::Daemon(daemon) => daemon.table(),
        }
    }

    /// Returns whether no network can be made any more, because the daemon has ended.
    pub fn is_over(&self) -> bool {
        match self {
            Self::Own(_) => false,
            Self::Daemon(daemon) => daemon.is_over(),
        }
    }

    /// Configures a fresh namespace of the caller's, as [`Networks::configure`].
    ///
    /// # Errors
    /// [`crate::Error::Step`] for a namespace that is not fresh or cannot be configured.
    pub fn configure(&self, namespace: OwnedFd) -> Result<NamespaceHandle> {
        match self {
            Self::Own(networks) => {
                let configured = networks.configure(namespace)?;
                Ok(NamespaceHandle::Own(Arc::clone(networks), configured))
            }
            Self::Daemon(daemon) => daemon.configure(namespace).map(NamespaceHandle::Daemon),
        }
    }
}

impl NamespaceHandle {
    /// Returns whether the namespace is unused so far.
    pub fn is_unused(&mut self) -> bool {
        match self {
            Self::Own(_, configured) => configured.is_unused(),
            Self::Daemon(namespace) => namespace.is_unused(),
        }
    }

    /// Creates the network of a job, as [`Networks::create_configured`].
    ///
    /// # Errors
    /// The errors of [`Networks::create_configured`].
    pub fn create(self, spec: JobSpec) -> Result<NetworkHandle> {
        match self {
            Self::Own(networks, configured) => {
                let made = networks.create_configured(spec, configured)?;
                Ok(NetworkHandle::Own(Box::new(made)))
            }
            Self::Daemon(namespace) => Ok(NetworkHandle::Daemon(Box::new(namespace.create(spec)?))),
        }
    }
}

impl NetworkHandle {
    /// The specification.
    pub fn spec(&self) -> &JobSpec {
        match self {
            Self::Own(network) => network.spec(),
            Self::Daemon(network) => network.spec(),
        }
    }

    /// The requests to the kernel for making the network.
    pub fn counters(&self) -> Counters {
        match self {
            Self::Own(network) => network.counters(),
            Self::Daemon(network) => network.counters(),
        }
    }

    /// The entry of a slot in the table of functions, as [`JobNetwork::entry`].
    ///
    /// # Errors
    /// [`crate::Error::Slot`].
    pub fn entry(&self, slot: u32) -> Result<Option<Vec<u8>>> {
        match self {
            Self::Own(network) => network.entry(slot),
            Self::Daemon(network) => network.entry(slot),
        }
    }

    /// Assigns the addresses of a slot to a control group, as [`JobNetwork::attach`].
    ///
    /// # Errors
    /// The errors of [`JobNetwork::attach`].
    pub fn attach(&self, group: &Path, slot: u32) -> Result<Address> {
        match self {
            Self::Own(network) => network.attach(group, slot),
            Self::Daemon(network) => network.attach(group, slot),
        }
    }

    /// Assigns the addresses of a slot to a process, as [`JobNetwork::attach_notifier`].
    ///
    /// # Errors
    /// The errors of [`JobNetwork::attach_notifier`].
    pub fn attach_notifier(&self, listener: OwnedFd, slot: u32) -> Result<Address> {
        match self {
            Self::Own(network) => network.attach_notifier(listener, slot),
            Self::Daemon(network) => network.attach_notifier(&listener, slot),
        }
    }

    /// Waits until every other host answers.
    ///
    /// # Errors
    /// [`crate::Error::Unreachable`] with the hosts that did not answer within the time limit.
    pub fn ready(&mut self, within: Duration) -> Result<()> {
        match self {
            Self::Own(network) => network.ready(within).map(drop),
            Self::Daemon(network) => network.ready(within),
        }
    }

    /// TCP data and closes that functions have sent and peers have not acknowledged.
    ///
    /// # Errors
    /// [`crate::Error::Step`] when the kernel does not list the sockets.
    pub fn unsent(&mut self) -> Result<Unsent> {
        match self {
            Self::Own(network) => network.unsent(),
            Self::Daemon(network) => network.unsent(),
        }
    }

    /// The state of the network now.
    ///
    /// # Errors
    /// [`crate::Error::Step`] when the kernel does not tell.
    pub fn report(&mut self) -> Result<NetworkReport> {
        match self {
            Self::Own(network) => network.report(),
            Self::Daemon(network) => network.report(),
        }
    }

    /// Traces the route of a packet to an address, as [`JobNetwork::trace`].
    ///
    /// # Errors
    /// [`crate::Error::Step`] when the kernel does not tell.
    pub fn trace(&mut self, to: IpAddr, within: Duration) -> Result<TracedRoute> {
        match self {
            Self::Own(network) => network.trace(to, within),
            Self::Daemon(network) => network.trace(to, within),
        }
    }

    /// The sockets that receive packets for an address and a port on this host.
    ///
    /// # Errors
    /// [`crate::Error::Step`] when the kernel does not tell.
    pub fn listeners(&mut self, at: IpAddr, port: u16) -> Result<Vec<Listener>> {
        match self {
            Self::Own(network) => network.listeners(at, port),
            Self::Daemon(network) => network.listeners(at, port),
        }
    }
}
