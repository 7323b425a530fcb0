//! All job networks of a node.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::egress::Gate;
use crate::hold::{Dual, Groups};
use crate::host::{Host, lock};
use crate::job::JobNetwork;
use crate::lease::{Lease, Leases};
use crate::namespace::Fault;
use crate::netlink::Batch;
use crate::prepare::{Furnished, Pool, Prepared};
use crate::{Error, JobSpec, Range, Result, link};

/// The UDP port that RFC 7348 gives to VXLAN.
pub const PORT: u16 = 4789;
/// How long to wait for the kernel to take away the namespace of a job that has just ended.
const PATIENCE: Duration = Duration::from_secs(2);

/// How job networks are made on a node.
#[derive(Clone, Debug)]
pub struct Options {
    /// The node's folder, for leases.
    pub state: PathBuf,
    /// How many namespaces are made ahead.
    pub pool: usize,
    /// The UDP port of the overlays, the same on all hosts.
    pub port: u16,
    /// The most bytes of a packet between hosts; asked of the device if none.
    pub mtu: Option<u32>,
    /// The control group (version 2) above those of all functions, in which programs hold them to
    /// their addresses. Without it somebody else must.
    pub group: Option<PathBuf>,
    /// IPv4 addresses for the pairs by which jobs leave the host, two for each job that may reach
    /// anything outside. Nobody else on this host has them; they are seen nowhere else.
    pub links: Range,
}

impl Options {
    /// The usual ones.
    pub fn new(state: impl Into<PathBuf>) -> Self {
        Self {
            state: state.into(),
            pool: 4,
            port: PORT,
            mtu: None,
            group: None,
            links: Range::v4(Ipv4Addr::new(100, 64, 0, 0), 10),
        }
    }
}

/// What makes job networks on this host. Calls take a few milliseconds at most and block, so an
/// asynchronous caller makes them where it may.
pub struct Networks {
    pool: Pool,
    shared: Arc<Shared>,
}

/// What networks need of their node.
#[derive(Debug)]
pub(crate) struct Shared {
    pub host: Arc<Host>,
    pub leases: Leases,
    pub port: u16,
    pub groups: Option<Groups>,
    pub gate: Gate,
    pub dual: Dual,
    mtu: Option<u32>,
    /// Leases by their overlays: those of networks that are there, and of those that are ending.
    held: Mutex<BTreeMap<u32, Held>>,
}

/// A lease, and the number of its namespace if this process made it.
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
        f.debug_struct("Networks").field("prepared", &self.prepared()).finish_non_exhaustive()
    }
}

impl Networks {
    /// Begins on this host, in the calling thread's network namespace. What an earlier node left
    /// is taken away, or kept from use until the kernel has.
    pub fn open(options: Options) -> Result<Self> {
        let host =
            Host::open().map_err(|error| Error::step("-", "open a netlink socket", error))?;
        let host = Arc::new(host);
        let leases = Leases::open(&options.state)?;
        let held = leases.all()?.into_iter().map(|lease| (lease.vni, Held::of_another_node(lease)));
        let groups = options.group.as_deref().map(Groups::attach).transpose()?;
        let shared = Arc::new(Shared {
            host: host.clone(),
            groups,
            gate: Gate::new(options.links, options.port),
            dual: Dual::default(),
            leases,
            port: options.port,
            mtu: options.mtu,
            held: Mutex::new(held.collect()),
        });
        shared.cut_what_is_left()?;
        let pool = Pool::start(&host, options.pool);
        let pool = pool.map_err(|error| Error::step("-", "start a thread", error))?;
        Ok(Self { pool, shared })
    }

    /// Makes a job's network. All of it is there when this returns, and none of it if it fails.
    pub fn create(&self, spec: JobSpec) -> Result<JobNetwork> {
        self.create_with(spec, || self.pool.take())
    }

    /// The same in a namespace that somebody else has made, for instance so that it belongs to the
    /// user namespace of who joins it. It must be fresh, and nobody may be in it yet; the network's
    /// end comes when they have let it go as well.
    pub fn create_in(&self, spec: JobSpec, namespace: OwnedFd) -> Result<JobNetwork> {
        self.create_with(spec, || Prepared::of(&self.shared.host, namespace))
    }

    /// Makes a namespace of somebody else's ready for a job that is not there yet: part of
    /// the work of [`Self::create_in`].
    pub fn furnish(&self, namespace: OwnedFd) -> Result<Furnished> {
        Furnished::of(namespace).map_err(|(step, error)| Error::step("-", step, error))
    }

    /// As [`Self::create_in`], in a namespace that was furnished ahead.
    pub fn create_furnished(&self, spec: JobSpec, furnished: Furnished) -> Result<JobNetwork> {
        self.create_with(spec, || Prepared::from_furnished(&self.shared.host, furnished))
    }

    fn create_with(
        &self,
        spec: JobSpec,
        prepare: impl FnOnce() -> std::result::Result<Prepared, Fault>,
    ) -> Result<JobNetwork> {
        spec.check()?;
        self.shared.claim(&spec)?;
        match prepare() {
            Ok(prepared) => JobNetwork::make(spec, prepared, self.shared.clone()),
            Err((step, error)) => {
                self.shared.forget(spec.vni)?;
                Err(Error::step(&spec.job, step, error))
            }
        }
    }

    /// The leases of this host, those of networks that are ending included.
    pub fn leases(&self) -> Result<Vec<Lease>> {
        self.shared.release_all_gone()?;
        Ok(lock(&self.shared.held).values().map(|held| held.lease.clone()).collect())
    }

    /// Whether functions are held to their addresses by their control groups, and not by answers to
    /// their system calls.
    pub fn holds_by_groups(&self) -> bool {
        self.shared.groups.is_some()
    }

    /// How many namespaces are ready in the pool.
    pub fn prepared(&self) -> usize {
        self.pool.ready()
    }

    /// Waits until the pool is full or cannot be filled.
    pub fn wait_until_prepared(&self) {
        self.pool.wait_until_full();
    }
}

impl Shared {
    /// The most bytes of a packet in the underlay of a job.
    pub fn underlay_mtu(&self, spec: &JobSpec) -> Result<u32> {
        match self.mtu {
            Some(mtu) => Ok(mtu),
            None => self.host.mtu(&spec.job, spec.host),
        }
    }

    /// Takes an overlay's number for a job, once nothing is left of whoever had it.
    fn claim(&self, spec: &JobSpec) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
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

    /// Keeps the lease of a network that is about to be made in this namespace.
    pub fn hold(&self, lease: &Lease, namespace: u64) -> Result<()> {
        let held = Held { lease: lease.clone(), namespace: Some(namespace) };
        lock(&self.held).insert(lease.vni, held);
        self.leases.write(lease)
    }

    /// Gives up a number of which nothing is left.
    fn forget(&self, vni: u32) -> Result<()> {
        let held = lock(&self.held).remove(&vni);
        if let (Some(groups), Some(namespace)) = (&self.groups, held.and_then(|h| h.namespace)) {
            groups.remove_job(namespace);
        }
        self.leases.remove(vni)
    }

    /// Marks a network as ending. The lease stays until nothing of it is left.
    pub fn end(&self, lease: &mut Lease) {
        lease.ending = true;
        if let Some(held) = lock(&self.held).get_mut(&lease.vni) {
            held.lease.ending = true;
        }
        if let Err(error) = self.leases.write(lease) {
            tracing::warn!(job = lease.job, %error, "the lease of an ending network was not kept");
        }
    }

    /// Removes the lease of a network that was ending, if nothing of it is left; whether that is so.
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

    fn release_all_gone(&self) -> Result<()> {
        let all: Vec<u32> = lock(&self.held).keys().copied().collect();
        all.into_iter().try_for_each(|vni| self.release_if_gone(vni).map(drop))
    }

    /// A namespace lives by the descriptors of its node and by the processes in it. The node is
    /// dead; what may be left are processes that are being killed. They are cut off.
    fn cut_what_is_left(&self) -> Result<()> {
        for Held { lease, .. } in lock(&self.held).values_mut() {
            lease.ending = true;
            let fail = |failed| Error::failed(&lease.job, failed);
            if let Some(found) = self.host.link(&lease.device).map_err(fail)? {
                let mut batch = Batch::new();
                link::set_down(&mut batch, "set down what is left", found.index);
                self.host.run(batch).map_err(fail)?;
            }
        }
        self.release_all_gone()
    }
}
