//! All job networks of a node.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::egress::Gate;
use crate::enforcement::{Cgroups, DualStack};
use crate::host::{Host, lock};
use crate::job::JobNetwork;
use crate::lease::{Lease, Leases};
use crate::namespace::Fault;
use crate::netlink::Batch;
use crate::prepare::{ConfiguredNamespace, Prepared};
use crate::{Error, JobSpec, Range, Result, link};

/// The UDP port that RFC 7348 gives to VXLAN.
pub const PORT: u16 = 4789;
/// The limit on the wait for the kernel to remove the namespace of a job that has just ended.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The options for job networks on a node.
#[derive(Clone, Debug)]
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
    shared: Arc<Shared>,
}

/// State of the node that all its networks share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub host: Arc<Host>,
    pub leases: Leases,
    pub port: u16,
    pub groups: Option<Cgroups>,
    pub gate: Gate,
    pub dual: DualStack,
    mtu: Option<u32>,
    /// Leases by VNI, of live networks and of those that are being removed.
    held: Mutex<BTreeMap<u32, Held>>,
}

/// A lease, and the cookie of its namespace if this process made it.
#[derive(Clone, Debug)]
struct Held {
    lease: Lease,
    namespace: Option<u64>,
}

impl Held {
    fn of_another_node(lease: Lease) -> Self {
        Self { lease, namespace: None }
    }
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
        let host =
            Host::open().map_err(|error| Error::step("-", "open a netlink socket", error))?;
        let leases = Leases::open(&options.state)?;
        let held = leases.all()?.into_iter().map(|lease| (lease.vni, Held::of_another_node(lease)));
        let groups = options.group.as_deref().map(Cgroups::attach).transpose()?;
        let shared = Arc::new(Shared {
            host: Arc::new(host),
            groups,
            gate: Gate::new(options.links, options.port),
            dual: DualStack::default(),
            leases,
            port: options.port,
            mtu: options.mtu,
            held: Mutex::new(held.collect()),
        });
        shared.disconnect_leftovers()?;
        Ok(Self { shared })
    }

    /// Creates a job's network, completely or, on an error, not at all.
    pub fn create(&self, spec: JobSpec) -> Result<JobNetwork> {
        self.create_with(spec, || Prepared::make(&self.shared.host))
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
        self.create_with(spec, || Prepared::from_configured(&self.shared.host, configured))
    }

    fn create_with(
        &self,
        spec: JobSpec,
        prepare: impl FnOnce() -> std::result::Result<Prepared, Fault>,
    ) -> Result<JobNetwork> {
        spec.check()?;
        self.shared.release_ended();
        self.shared.claim(&spec)?;
        match prepare() {
            Ok(prepared) => JobNetwork::make(spec, prepared, self.shared.clone()),
            Err((step, error)) => {
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

impl Shared {
    /// The MTU of a job's underlay, in bytes.
    pub fn underlay_mtu(&self, spec: &JobSpec) -> Result<u32> {
        match self.mtu {
            Some(mtu) => Ok(mtu),
            None => self.host.mtu(&spec.job, spec.host),
        }
    }

    /// Reserves a VNI for a job, once no part of the network that had it is left.
    fn claim(&self, spec: &JobSpec) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let holder = {
                let mut held = lock(&self.held);
                match held.get(&spec.vni) {
                    None => {
                        let lease = Lease::new(spec, "");
                        held.insert(spec.vni, Held { lease, namespace: None });
                        return Ok(());
                    }
                    Some(held) => held.lease.clone(),
                }
            };
            if !holder.ending || Instant::now() >= deadline {
                let what = format!("overlay {}", spec.vni);
                return Err(Error::Taken { job: spec.job.clone(), what, holder: holder.job });
            }
            if !self.release_if_gone(spec.vni)? {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Records the lease of a network that is about to be created in this namespace.
    pub fn record_lease(&self, lease: &Lease, namespace: u64) -> Result<()> {
        let held = Held { lease: lease.clone(), namespace: Some(namespace) };
        lock(&self.held).insert(lease.vni, held);
        self.leases.write(lease)
    }

    /// Releases a VNI; no part of its network may be left.
    fn forget(&self, vni: u32) -> Result<()> {
        let held = lock(&self.held).remove(&vni);
        if let (Some(groups), Some(namespace)) = (&self.groups, held.and_then(|h| h.namespace)) {
            groups.remove_job(namespace);
        }
        self.leases.remove(vni)
    }

    /// Marks a network as ending. The lease stays until no part of the network is left.
    pub fn end(&self, lease: &mut Lease) {
        lease.ending = true;
        if let Some(held) = lock(&self.held).get_mut(&lease.vni) {
            held.lease.ending = true;
        }
        if let Err(error) = self.leases.write(lease) {
            tracing::warn!(job = lease.job, %error, "cannot write the lease of an ending network");
        }
    }

    /// Removes the lease of an ending network if no part of it is left. Returns whether none is
    /// left.
    pub fn release_if_gone(&self, vni: u32) -> Result<bool> {
        let Some(held) = lock(&self.held).get(&vni).cloned() else { return Ok(true) };
        let lease = held.lease;
        let found = self.host.link(&lease.device);
        let found = found.map_err(|failed| Error::failed(&lease.job, failed))?;
        let gone = lease.ending && found.is_none();
        if gone {
            self.forget(vni)?;
        }
        Ok(gone)
    }

    /// Releases the leases of networks that have ended. Without this each network would leave one
    /// until its overlay is used again.
    fn release_ended(&self) {
        let ended: Vec<u32> = {
            let held = lock(&self.held);
            held.iter().filter(|(_, held)| held.lease.ending).map(|(vni, _)| *vni).collect()
        };
        for vni in ended {
            if let Err(error) = self.release_if_gone(vni) {
                tracing::warn!(vni, %error, "the lease of a network that has ended is kept");
            }
        }
    }

    fn release_all_gone(&self) -> Result<()> {
        let all: Vec<u32> = lock(&self.held).keys().copied().collect();
        all.into_iter().try_for_each(|vni| self.release_if_gone(vni).map(drop))
    }

    /// A namespace exists as long as descriptors of its node or processes in it do. The node is
    /// dead; processes that are being killed may be left. They are disconnected.
    fn disconnect_leftovers(&self) -> Result<()> {
        for Held { lease, .. } in lock(&self.held).values_mut() {
            lease.ending = true;
            let fail = |failed| Error::failed(&lease.job, failed);
            if let Some(found) = self.host.link(&lease.device).map_err(fail)? {
                let mut batch = Batch::new();
                link::set_down(&mut batch, "set down the device of an earlier node", found.index);
                self.host.run(batch).map_err(fail)?;
            }
        }
        self.release_all_gone()
    }
}
