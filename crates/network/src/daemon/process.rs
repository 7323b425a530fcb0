//! The daemon: a thread for each network, which answers the requests on its connection and removes the
//! network at the connection's end.
//!
//! Invariant: a namespace is changed only after it was found to be fresh: it is not the daemon's own,
//! and has no device but the loopback.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Scope};

use rustix::fs::{fstat, stat};
use serde::Serialize;
use snowmelt_kernel::namespace::{flags, join};
use snowmelt_kernel::process::DaemonUser;

use super::message::{MadeNetwork, NetworkReport, NetworkRequest, OpenRequest, answer, receive};
use crate::netlink::{AF_UNSPEC, Batch, NLM_F_DUMP, RTM_GETLINK, Socket};
use crate::{ConfiguredNamespace, Error, JobNetwork, JobSpec, Networks, Result};

/// The most networks and configured namespaces at a time.
const MAX_CONNECTIONS: usize = 2048;

/// The stack of a thread for a network, in bytes.
const STACK_BYTES: usize = 512 << 10;

/// The capabilities of a daemon that is not root.
const CAPABILITIES: [u32; 4] = [
    // `CAP_NET_ADMIN`: devices, routes and packet rules of the host and of jobs.
    12, // `CAP_NET_RAW`: echo requests between the hosts of a job.
    13,
    // `CAP_SYS_PTRACE`: addresses in the memory of functions whose system calls the daemon answers.
    19, // `CAP_SYS_ADMIN`: the network namespaces of jobs, and programs on control groups.
    21,
];

/// Runs a network daemon on standard input until its node has ended. A daemon that becomes a `user`
/// has itself confined by `confine` then. Must be called before the process has a second thread and
/// before it opens any file.
pub fn network_daemon_main(
    user: Option<DaemonUser>,
    confine: impl FnOnce() -> io::Result<()>,
) -> ExitCode {
    let rights =
        user.map_or(Ok(()), |user| user.take_rights(&CAPABILITIES).and_then(|()| confine()));
    match rights.and_then(|()| run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("snowmelt network daemon: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    let control = io::stdin().as_fd().try_clone_to_owned()?;
    let Some(networks) = open(&control)? else { return Ok(()) };
    let networks = Arc::new(networks);
    let connections = AtomicUsize::new(0);
    // At its end all connections have ended too, as the node has, and all networks are removed.
    thread::scope(|scope| {
        let mut buffer = Vec::new();
        while let Some(((), fds)) = receive::<()>(&control, &mut buffer)? {
            let Ok([namespace, connection]) = <[OwnedFd; 2]>::try_from(fds) else { continue };
            serve(scope, &networks, &connections, namespace, connection);
        }
        Ok(())
    })
}

/// Opens the networks of this host with the first options with which they can be opened. `None` if the
/// node ends before.
fn open(control: &OwnedFd) -> io::Result<Option<Networks>> {
    let mut buffer = Vec::new();
    while let Some((OpenRequest(options), _)) = receive(control, &mut buffer)? {
        match Networks::open(options) {
            Ok(networks) => {
                let table = networks.table();
                answer(control, &Ok(()), table.as_slice())?;
                return Ok(Some(networks));
            }
            Err(error) => answer::<()>(control, &Err(error), &[])?,
        }
    }
    Ok(None)
}

fn serve<'scope>(
    scope: &'scope Scope<'scope, '_>,
    networks: &Arc<Networks>,
    connections: &'scope AtomicUsize,
    namespace: OwnedFd,
    connection: OwnedFd,
) {
    // Without an answer the node sees the end of its connection.
    if connections.load(Ordering::Relaxed) >= MAX_CONNECTIONS {
        return tracing::warn!("there are {MAX_CONNECTIONS} networks: another one is refused");
    }
    connections.fetch_add(1, Ordering::Relaxed);
    let networks = Arc::clone(networks);
    let thread = thread::Builder::new().name("network".to_owned()).stack_size(STACK_BYTES);
    let started = thread.spawn_scoped(scope, move || {
        if let Err(error) = NetworkConnection::new(networks, namespace, connection).serve() {
            tracing::debug!(%error, "a connection of the node has broken");
        }
        connections.fetch_sub(1, Ordering::Relaxed);
    });
    if let Err(error) = started {
        connections.fetch_sub(1, Ordering::Relaxed);
        tracing::warn!(%error, "no thread for a network");
    }
}

/// The state of the namespace of a connection.
enum ConnectionState {
    /// Not looked at yet.
    Given(OwnedFd),
    Configured(ConfiguredNamespace),
    Made(Box<JobNetwork>),
    /// A step has failed, or it was not fresh.
    Refused,
}

struct NetworkConnection {
    networks: Arc<Networks>,
    state: ConnectionState,
    connection: OwnedFd,
}

impl NetworkConnection {
    fn new(networks: Arc<Networks>, namespace: OwnedFd, connection: OwnedFd) -> Self {
        Self { networks, state: ConnectionState::Given(namespace), connection }
    }

    fn serve(mut self) -> io::Result<()> {
        let mut buffer = Vec::new();
        while let Some((request, fds)) = receive(&self.connection, &mut buffer)? {
            match request {
                NetworkRequest::Configure => {
                    let configured = self.configure();
                    self.reply(&configured)?;
                }
                NetworkRequest::IsUnused => {
                    let unused = self.is_unused();
                    self.reply(&unused)?;
                }
                NetworkRequest::Create(spec) => {
                    let made = self.create(*spec);
                    self.reply(&made)?;
                }
                asked => self.ask_network(asked, fds)?,
            }
        }
        Ok(())
    }

    fn configure(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.state, ConnectionState::Refused) {
            ConnectionState::Given(namespace) => {
                let fresh = check_fresh(&namespace);
                fresh.map_err(|error| Error::step("-", "use the namespace", error))?;
                self.state = ConnectionState::Configured(self.networks.configure(namespace)?);
                Ok(())
            }
            other => {
                self.state = other;
                Err(out_of_turn())
            }
        }
    }

    fn is_unused(&mut self) -> Result<bool> {
        match &mut self.state {
            ConnectionState::Configured(configured) => Ok(configured.is_unused()),
            _ => Err(out_of_turn()),
        }
    }

    fn create(&mut self, spec: JobSpec) -> Result<MadeNetwork> {
        match std::mem::replace(&mut self.state, ConnectionState::Refused) {
            ConnectionState::Configured(configured) => {
                let network = self.networks.create_configured(spec, configured)?;
                let made = MadeNetwork {
                    namespace: network.cookie(),
                    enforcement: network.enforcement(),
                    counters: network.counters(),
                };
                self.state = ConnectionState::Made(Box::new(network));
                Ok(made)
            }
            other => {
                self.state = other;
                Err(out_of_turn())
            }
        }
    }

    fn ask_network(&mut self, request: NetworkRequest, mut fds: Vec<OwnedFd>) -> io::Result<()> {
        let ConnectionState::Made(network) = &mut self.state else {
            return self.reply::<()>(&Err(out_of_turn()));
        };
        let connection = &self.connection;
        match request {
            NetworkRequest::Attach { group, slot } => {
                answer(connection, &network.attach(&group, slot), &[])
            }
            NetworkRequest::AttachNotifier { slot } => {
                let listener = fds.pop().ok_or_else(out_of_turn);
                let attached =
                    listener.and_then(|listener| network.attach_notifier(listener, slot));
                answer(connection, &attached, &[])
            }
            NetworkRequest::Ready { within } => {
                answer(connection, &network.ready(within).map(drop), &[])
            }
            NetworkRequest::Unsent => answer(connection, &network.unsent(), &[]),
            NetworkRequest::Report => answer(connection, &network.report(), &[]),
            NetworkRequest::Trace { to, within } => {
                answer(connection, &network.trace(to, within), &[])
            }
            NetworkRequest::Listeners { at, port } => {
                answer(connection, &network.listeners(at, port), &[])
            }
            NetworkRequest::Configure | NetworkRequest::IsUnused | NetworkRequest::Create(_) => {
                Ok(())
            }
        }
    }

    fn reply<T: Serialize>(&self, answered: &Result<T>) -> io::Result<()> {
        answer(&self.connection, answered, &[])
    }
}

impl JobNetwork {
    /// The state of the network now.
    ///
    /// # Errors
    /// [`Error::Step`] when the kernel does not tell.
    pub fn report(&mut self) -> Result<NetworkReport> {
        Ok(NetworkReport {
            device: self.device().to_owned(),
            mtu: self.mtu()?,
            enforcement: self.enforcement(),
            counters: self.counters(),
            contents: self.contents()?,
        })
    }
}

/// The error of a request that no node sends.
fn out_of_turn() -> Error {
    Error::step("-", "do what was asked", io::ErrorKind::InvalidInput.into())
}

/// Refuses a namespace that is in use: that of this process, and one with devices.
fn check_fresh(namespace: &OwnedFd) -> io::Result<()> {
    let own = stat("/proc/self/ns/net")?;
    let given = fstat(namespace)?;
    let refused = |reason: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    if (own.st_dev, own.st_ino) == (given.st_dev, given.st_ino) {
        return refused("it is that of the host");
    }
    let namespace = namespace.try_clone()?;
    // A thread of its own, because it stays in the namespace.
    let look = thread::Builder::new().name("network-look".to_owned()).spawn(move || {
        join(&namespace, flags::NETWORK)?;
        let mut batch = Batch::new();
        batch.add("list the devices", RTM_GETLINK, NLM_F_DUMP, &[AF_UNSPEC; 16], |_| {});
        let devices = Socket::open(None)?.ask(batch).map_err(|failed| failed.source)?;
        Ok::<_, io::Error>(devices.len())
    })?;
    match look.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))? {
        1 => Ok(()),
        _ => refused("it has devices"),
    }
}
