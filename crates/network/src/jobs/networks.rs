//! All job networks of a node.

use std::net::Ipv4Addr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use super::job::JobNetwork;
use super::lease::{Lease, LeaseFolder};
use super::state::{HeldLease, NetworkState};
use crate::devices::{HostNamespace, NamespaceFault, lock};
use crate::egress::Gate;
use crate::enforcement::{Cgroups, DualStack};
use crate::preparation::{ConfiguredNamespace, PreparedNetwork};
use crate::{Error, JobSpec, Range, Result};

/// The UDP port that RFC 7348 gives to VXLAN.
pub const PORT: u16 = 4789;

/// The options for job networks on a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Options {
    /// The node's folder, for leases.
    pub state: PathBuf,
    /// The UDP port of the overlays, the same on all hosts.
    pub port: u16,
    /// The MTU between hosts in bytes; read from the device if `None`.
    pub mtu: Option<u32>,
    /// The control group (version 2) above the groups of all functions, to which the BPF programs
    /// for address enforcement are attached. Without it every function needs a seccomp notifier.
    pub group: Option<PathBuf>,
    /// IPv4 addresses for the egress veth pairs, two for each job with an egress policy. They must
    /// not be used otherwise on this host, and do not appear on any network.
    pub links: Range,
}

impl Options {
    /// The default options, with leases in the folder `state`.
    pub fn new(state: impl Into<PathBuf>) -> Self {
        Self {
            state: state.into(),
            port: PORT,
            mtu: None,
            group: None,
            links: Range::v4(Ipv4Addr::new(100, 64, 0, 0), 10),
        }
    }
}

/// Creates job networks on this host. Calls take a few milliseconds at most and block, so an
/// asynchronous caller makes them on a blocking thread.
pub struct Networks {
    shared: Arc<NetworkState>,
}

impl std::fmt::Debug for Networks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Networks").finish_non_exhaustive()
    }
}

impl Networks {
    /// Starts on this host, in the calling thread's network namespace. Networks of an earlier node
    /// are disconnected; their VNIs are not reused until the kernel has removed them.
    pub fn open(options: Options) -> Result<Self> {
        let host = HostNamespace::open()
            .map_err(|error| Error::step("-", "open a netlink socket", error))?;
        let leases = LeaseFolder::open(&options.state)?;
        let held =
            leases.all()?.into_iter().map(|lease| (lease.vni, HeldLease::of_another_node(lease)));
        let groups = options.group.as_deref().map(Cgroups::attach).transpose()?;
        let shared = Arc::new(NetworkState {
            host: Arc::new(host),
            groups,
            gate: Gate::new(options.links, options.port),
            dual: DualStack::default(),
            leases,
            port: options.port,
            mtu: options.mtu,
            held: Mutex::new(held.collect()),
        });
        // Before the first job: functions of a node that was killed must not reach those of the
        // next one.
        shared.disconnect_leftovers()?;
        Ok(Self { shared })
    }

    /// Creates a job's network, completely or, on an error, not at all.
    pub fn create(&self, spec: JobSpec) -> Result<JobNetwork> {
        self.create_with(spec, || PreparedNetwork::make(&self.shared.host))
    }

    /// Configures a namespace of the caller's for a job that need not exist yet: part of the work
    /// of [`Self::create_configured`]. It must be fresh and empty.
    pub fn configure(&self, namespace: OwnedFd) -> Result<ConfiguredNamespace> {
        ConfiguredNamespace::of(namespace).map_err(|(step, error)| Error::step("-", step, error))
    }

    /// Like [`Self::create`], in a namespace of the caller's, for instance so that it belongs to
    /// the user namespace of the processes that join it. The network ends only when the caller's
    /// references to the namespace are gone too.
    pub fn create_configured(
        &self,
        spec: JobSpec,
        configured: ConfiguredNamespace,
    ) -> Result<JobNetwork> {
        self.create_with(spec, || PreparedNetwork::from_configured(&self.shared.host, configured))
    }

    fn create_with(
        &self,
        spec: JobSpec,
        prepare: impl FnOnce() -> std::result::Result<PreparedNetwork, NamespaceFault>,
    ) -> Result<JobNetwork> {
        spec.check()?;
        // The moment to look: nobody is told when the kernel has removed a namespace.
        self.shared.release_ended();
        // Before anything is made: two jobs with one VNI would hear each other.
        self.shared.claim(&spec)?;
        match prepare() {
            Ok(prepared) => JobNetwork::make(spec, prepared, self.shared.clone()),
            Err((step, error)) => {
                // Nothing of the network exists yet, so the reservation goes at once.
                self.shared.forget(spec.vni)?;
                Err(Error::step(&spec.job, step, error))
            }
        }
    }

    /// The leases of this host, including those of networks that are being removed.
    pub fn leases(&self) -> Result<Vec<Lease>> {
        self.shared.release_all_gone()?;
        Ok(lock(&self.shared.held).values().map(|held| held.lease.clone()).collect())
    }

    /// The table of the functions' entries, by the number of their control group. `None` where
    /// addresses are enforced by answers to system calls instead of BPF programs.
    pub fn table(&self) -> Option<BorrowedFd<'_>> {
        self.shared.groups.as_ref().map(Cgroups::table)
    }
}
