//! The node: its stores, its pools, and the leases that it gives.
//!
//! | part | file |
//! |---|---|
//! | stores, pools, figures, the end | here |
//! | leases of instances | `leases` |
//! | workers, ranks and trees, for those who run tasks of queries and parts of jobs | `tasks` |
//! //! | files and secrets of functions | `files` |
//! | the cluster that the host belongs to | `cluster` |
//!
//! Invariant: the rooms below know nothing of the node. Each has what it needs from its
//! constructor, except for the cluster that the host joins later.

mod cluster;
mod files;
mod leases;
mod tasks;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use snowmelt_api::{NodeFigures, SpawnerHealth};
use snowmelt_image::source::trust_authorities;
use snowmelt_kernel::rootless;
use snowmelt_ledger::{Capacity, Ledger};
use snowmelt_sandbox::Spawner;
use snowmelt_types::ByteSize;
use snowmelt_wire::Load;

use crate::files::shared_files::SharedFiles;
use crate::images::{ImageKeeper, ImageSettings};
use crate::import_cache::ImportCache;
use crate::instances::Instances;
use crate::networks::JobNetworks;
use crate::resources::account::Account;
use crate::resources::count::Count;
use crate::resources::pool::ItemPool;
use crate::times::MAINTENANCE_INTERVAL;
use crate::user_code::interpreters::Interpreters;
use crate::user_code::preparation::Preparation;
use crate::user_code::unit::WarmStart;
use crate::workers::Workers;
use crate::{EnforcementChoice, InstanceLimits, RemovalReason, Result, Unit};

/// The folders, programs, budgets and settings of a node.
#[derive(Clone, Debug)]
pub struct Options {
    /// The state folder: packages, code and the Python runtime live in it, by content.
    pub state_dir: PathBuf,
    /// The folder of code and of files that clients have sent, where several controls share one;
    /// otherwise they are in the state folder.
    pub shared_dir: Option<PathBuf>,
    /// The program that is executed as a query worker.
    pub worker_binary: PathBuf,
    /// The platform's own program, which is executed again as the image daemon.
    pub program: PathBuf,
    /// The folder for the mounts of images; made with the first of them, and gone with the run
    /// directory.
    pub images_dir: PathBuf,
    /// The program of the interpreter for user code; `None` to look for one.
    pub python: Option<PathBuf>,
    /// The user besides root and that of the process to whom packages may belong.
    pub trusted: Option<u32>,
    /// The most memory of idle instances: the handler cache.
    pub handler_cache: ByteSize,
    /// The most memory of zygotes: the import cache.
    pub import_cache: ByteSize,
    /// The most zygotes without a parent zygote, of all tenants together; `None` for as many as the
    /// spawner has slots for.
    pub zygotes: Option<u32>,
    /// The resources that all sandboxes have together, of which each start reserves its part.
    pub capacity: Capacity,
    /// The divisor N of memory limits: an instance of a function reserves 1/N of its limit.
    pub overcommit: u32,
    /// The settings of images.
    pub images: ImageSettings,
    /// The control group above those of the sandboxes: `snowmelt/<instance>`.
    pub control_group: String,
    /// The folder for records of the networks of jobs; used by this node alone.
    pub networks_dir: PathBuf,
    /// The way in which functions of a job are held to their own addresses.
    pub enforcement: EnforcementChoice,
}

/// The agent of a host, which runs all sandboxes on it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Node {
    inner: Arc<Inner>,
}

/// The numbers of living sandboxes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The numbers of query workers: busy and idle.
    pub workers: [u32; 2],
    /// The numbers of instances of user code: busy and idle, prewarmed ones included.
    pub instances: [u32; 2],
    /// The number of zygotes.
    pub zygotes: u32,
}

#[derive(Debug)]
struct Inner {
    spawner: Spawner,
    account: Account,
    images: Arc<ImageKeeper>,
    imports: ImportCache,
    preparation: Preparation,
    /// The files of functions on their way between hosts.
    shared_files: SharedFiles,
    instances: Arc<Instances>,
    workers: Arc<Workers>,
    networks: Arc<JobNetworks>,
}

impl Node {
    /// Opens the stores; starts only the maintenance of idle sandboxes.
    pub fn new(options: Options, spawner: Spawner) -> Result<Self> {
        let instances = Arc::new(ItemPool::new(options.handler_cache));
        let slots = options.zygotes.unwrap_or_else(|| spawner.zygote_slots());
        let workers = Arc::new(ItemPool::new(ByteSize(u64::MAX)));
        let idle = Arc::clone(&instances);
        let idle_workers = Arc::clone(&workers);
        let account = Account::new(options.capacity, options.overcommit, idle, idle_workers);
        let budget = account.zygotes(options.import_cache);
        let idle = Arc::clone(&instances);
        let imports = ImportCache::new(spawner.clone(), account.clone(), budget, slots, idle);
        if let Some(file) = &options.images.ca_file {
            trust_authorities(file)?;
        }
        let program = options.program.clone();
        let images = Arc::new(ImageKeeper::new(
            options.program,
            options.state_dir.clone(),
            options.images_dir,
            options.images,
        ));
        let own = (spawner.clone(), account.clone(), imports.clone());
        let inner = Arc::new(Inner {
            shared_files: SharedFiles::new(&options.state_dir, Arc::clone(&images)),
            preparation: Preparation::new(
                options.state_dir.clone(),
                options.shared_dir.as_deref(),
                Interpreters::new(options.state_dir, options.python, options.trusted),
                Arc::clone(&images),
            )?,
            instances: Arc::new(Instances::new(
                own.0,
                own.1,
                own.2,
                Arc::clone(&images),
                instances,
            )),
            workers: Arc::new(Workers {
                spawner: spawner.clone(),
                account: account.clone(),
                program: options.worker_binary,
                idle: workers,
                busy: Count::default(),
            }),
            networks: Arc::new(JobNetworks::new(
                spawner.clone(),
                imports.clone(),
                options.control_group,
                options.networks_dir,
                options.enforcement,
                program,
            )),
            spawner,
            account,
            images,
            imports,
        });
        let weak = Arc::downgrade(&inner);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(MAINTENANCE_INTERVAL).await;
                let Some(inner) = weak.upgrade() else { return };
                inner.maintain(Instant::now());
            }
        });
        Ok(Self { inner })
    }

    /// Returns the state folder, which has packages, code and the Python runtime, by content, and,
    /// in folders of their own, what other parts of this host keep.
    pub fn state_dir(&self) -> &Path {
        &self.inner.preparation.state_dir
    }

    /// Returns what prepares code and requirements as units, with the stores of code and packages.
    pub fn preparation(&self) -> &Preparation {
        &self.inner.preparation
    }

    /// Keeps `count` instances of a unit prewarmed: loaded, paused, and replaced when taken.
    pub fn prewarm(&self, unit: &Unit, limits: &Arc<InstanceLimits>, load: &Load, count: usize) {
        self.inner.instances.prewarmed.ask(unit, limits, load, count);
        self.inner.instances.replenish(Instant::now());
    }

    /// Grows a zygote with all that a unit declares, unless there is one. Many starts in a short
    /// time would cause the same by themselves.
    pub async fn warm(&self, unit: &Unit) {
        if let WarmStart::Zygote(forked) = &unit.start {
            self.inner.imports.warm(&forked.want, &forked.source).await;
        }
    }

    /// Opens the networks of jobs ahead of the first job that needs one: the kernel takes some time
    /// to load the programs that hold functions to their addresses. A job that needs a network
    /// meanwhile waits; a failure is reported to each caller.
    pub fn open_networks(&self) {
        // Each job that asks for one is told that it needs root.
        if rootless::entered().is_some() {
            return;
        }
        let networks = Arc::clone(&self.inner.networks);
        tokio::task::spawn_blocking(move || {
            if let Err(error) = networks.opened() {
                tracing::warn!(%error, "jobs with a network cannot run on this host");
            }
        });
    }

    /// Returns the account of this host's memory, processor and instances.
    pub fn ledger(&self) -> &Ledger {
        &self.inner.account.ledger
    }

    /// Returns the number of idle instances of a unit, prewarmed ones included.
    pub fn idle_instances(&self, unit: &Unit, limits: &InstanceLimits) -> usize {
        self.inner.instances.waiting_count(&limits.key(&unit.digest))
    }

    /// Returns whether the mounts of a unit's images are dead, because the daemon that served them
    /// was given up: the unit then has to be prepared again.
    pub fn is_dead(&self, unit: &Unit) -> bool {
        self.inner.images.is_dead(&unit.root)
    }

    /// Returns why no instance of a unit is idle any more, if that is known.
    pub fn removal_reason(&self, unit: &Unit, limits: &InstanceLimits) -> Option<RemovalReason> {
        self.inner.instances.idle.removal_reason(&limits.key(&unit.digest))
    }

    /// Ends the idle instances of a unit, because its function was replaced or removed.
    pub fn forget(&self, unit: &Unit, limits: &InstanceLimits) {
        self.inner.instances.forget(&limits.key(&unit.digest));
    }

    /// Returns the numbers of living sandboxes.
    pub fn usage(&self) -> Usage {
        let short = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let instances = &self.inner.instances;
        let workers = &self.inner.workers;
        let (prewarmed, _) = instances.prewarmed.figures();
        let idle = short(instances.idle.figures().idle).saturating_add(prewarmed);
        Usage {
            workers: [workers.busy.get(), short(workers.idle.figures().idle)],
            instances: [instances.busy.get(), idle],
            zygotes: short(self.inner.imports.len() as u64),
        }
    }

    /// Returns the health of the spawner, the process that makes sandboxes.
    pub fn spawner(&self) -> SpawnerHealth {
        let snowmelt_sandbox::SpawnerHealth { processes, replaced, failure } =
            self.inner.spawner.health();
        SpawnerHealth { processes, replaced, failure }
    }

    /// Returns the figures of the caches, the starts and the ledger.
    pub fn figures(&self) -> NodeFigures {
        let inner = &self.inner;
        let instances = &inner.instances;
        let workers = &inner.workers;
        let (prewarmed, prewarmed_bytes) = instances.prewarmed.figures();
        NodeFigures {
            busy: instances.busy.get(),
            prewarmed,
            prewarmed_bytes,
            handlers: instances.idle.figures(),
            busy_workers: workers.busy.get(),
            workers: workers.idle.figures(),
            installs: inner.preparation.installs(),
            imports: inner.imports.figures(Instant::now()),
            starts: instances.starts.figures(),
            ledger: crate::resources::figures::of_ledger(&inner.account.ledger),
        }
    }

    /// Ends every sandbox, busy or not, and the spawner; returns when nothing is left.
    pub async fn stop(&self) -> Result<()> {
        self.inner.instances.clear();
        drop(self.inner.workers.idle.drain());
        self.inner.imports.clear();
        self.inner.spawner.shutdown().await?;
        self.inner.images.end();
        // The networks end last, so that no function is left that is not held to its addresses any
        // more.
        self.inner.networks.close().await
    }
}

impl Inner {
    fn maintain(&self, now: Instant) {
        self.workers.maintain(now);
        self.imports.maintain(now);
        self.instances.maintain(now);
    }
}
