//! The node's side of the network daemon.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use snowmelt_kernel::packet;

use super::message::{MadeNetwork, NetworkReport, NetworkRequest, OpenRequest, ask, ask_to_open};
use crate::enforcement::Cgroups;
use crate::{
    Address, AddressEnforcement, Counters, Error, JobSpec, Listener, Options, Result, TracedRoute,
    Unsent,
};

/// The networks of this host, in a daemon. Dropping it ends the daemon once its networks are gone.
#[derive(Debug)]
pub struct NetworkDaemon {
    control: OwnedFd,
    table: Option<OwnedFd>,
}

/// A namespace that the daemon has configured for a job that need not exist yet.
#[derive(Debug)]
pub struct DaemonNamespace {
    connection: OwnedFd,
}

/// The network of a job that the daemon has made; removed when dropped.
#[derive(Debug)]
pub struct DaemonNetwork {
    spec: JobSpec,
    made: MadeNetwork,
    connection: OwnedFd,
}

impl NetworkDaemon {
    /// Opens the networks of this host in the daemon at the other end of a connection, as
    /// [`crate::Networks::open`]. After an error the daemon waits for other options.
    ///
    /// # Errors
    /// The errors of [`crate::Networks::open`], and [`Error::Step`] for a daemon that has ended.
    pub fn open(control: &OwnedFd, options: Options) -> Result<Self> {
        let table = ask_to_open(control, &OpenRequest(options))?;
        let control = control.try_clone().map_err(|e| Error::step("-", "keep a connection", e))?;
        Ok(Self { control, table })
    }

    pub(super) fn table(&self) -> Option<BorrowedFd<'_>> {
        self.table.as_ref().map(AsFd::as_fd)
    }

    /// Returns whether the daemon has ended.
    pub(super) fn is_over(&self) -> bool {
        // It sends nothing unasked.
        packet::wait(&self.control, Duration::ZERO).unwrap_or(true)
    }

    /// Has a fresh namespace configured.
    pub(super) fn configure(&self, namespace: OwnedFd) -> Result<DaemonNamespace> {
        let send = || {
            let (ours, theirs) = packet::pair()?;
            packet::send(&self.control, b"null", &[namespace.as_fd(), theirs.as_fd()])?;
            Ok(ours)
        };
        let sent = send().map_err(|error: io::Error| Error::step("-", "ask the daemon", error));
        let connection = sent?;
        ask::<()>(&connection, &NetworkRequest::Configure, &[])?;
        Ok(DaemonNamespace { connection })
    }
}

impl DaemonNamespace {
    pub(super) fn is_unused(&self) -> bool {
        ask(&self.connection, &NetworkRequest::IsUnused, &[]).unwrap_or(false)
    }

    pub(super) fn create(self, spec: JobSpec) -> Result<DaemonNetwork> {
        let request = NetworkRequest::Create(Box::new(spec.clone()));
        let made = ask(&self.connection, &request, &[])?;
        Ok(DaemonNetwork { spec, made, connection: self.connection })
    }
}

impl DaemonNetwork {
    pub(super) fn spec(&self) -> &JobSpec {
        &self.spec
    }

    pub(super) fn counters(&self) -> Counters {
        self.made.counters
    }

    pub(super) fn entry(&self, slot: u32) -> Result<Option<Vec<u8>>> {
        let address = self.spec.address(slot)?;
        let by_groups = self.made.enforcement == AddressEnforcement::Cgroup;
        Ok(by_groups.then(|| Cgroups::entry(self.made.namespace, address)))
    }

    pub(super) fn attach(&self, group: &Path, slot: u32) -> Result<Address> {
        let request = NetworkRequest::Attach { group: group.to_owned(), slot };
        ask(&self.connection, &request, &[])
    }

    pub(super) fn attach_notifier(&self, listener: &OwnedFd, slot: u32) -> Result<Address> {
        ask(&self.connection, &NetworkRequest::AttachNotifier { slot }, &[listener.as_fd()])
    }

    pub(super) fn ready(&self, within: Duration) -> Result<()> {
        ask(&self.connection, &NetworkRequest::Ready { within }, &[])
    }

    pub(super) fn unsent(&self) -> Result<Unsent> {
        ask(&self.connection, &NetworkRequest::Unsent, &[])
    }

    pub(super) fn report(&self) -> Result<NetworkReport> {
        ask(&self.connection, &NetworkRequest::Report, &[])
    }

    pub(super) fn trace(&self, to: IpAddr, within: Duration) -> Result<TracedRoute> {
        ask(&self.connection, &NetworkRequest::Trace { to, within }, &[])
    }

    pub(super) fn listeners(&self, at: IpAddr, port: u16) -> Result<Vec<Listener>> {
        ask(&self.connection, &NetworkRequest::Listeners { at, port }, &[])
    }
}
