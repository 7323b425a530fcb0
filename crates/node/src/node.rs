//! The node: its stores, its pools, and the leases that it gives.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use snowmelt_api::{InstallFigures, NodeFigures, SpawnerHealth};
use snowmelt_image::source::trust_authorities;
use snowmelt_ledger::{Capacity, Ledger};
use snowmelt_network::Networks;
use snowmelt_package::{Environment, Installer, Python, Reporter, Runtime};
use snowmelt_sandbox::Spawner;
use snowmelt_types::{ByteSize, Digest, ErrorReport, Tenant};
use snowmelt_wire::{Load, SourceCode};

use crate::account::Account;
use crate::answer::Answers;
use crate::figures::Starts;
use crate::images::{Images, Settings as ImageSettings};
use crate::imports::ImportCache;
use crate::instance::Instance;
use crate::pool::Pool;
use crate::precreated::Precreated;
use crate::prewarmed::Prewarmed;
use crate::slots::Slots;
use crate::unit::WarmStart;
use crate::worker::Worker;
use crate::{
    CodeStore, EnforcementChoice, Error, InstanceLimits, Language, ProgramRequest, RemovalReason,
    Result, Unit, programs,
};

/// How often idle instances, workers and zygotes are maintained.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(1);

/// Folders and budgets of a node.
#[derive(Clone, Debug)]
pub struct Options {
    /// Packages, code and the Python runtime live here, by content.
    pub state_dir: PathBuf,
    /// The program that runs as a query worker.
    pub worker_binary: PathBuf,
    /// This program, which is executed again as the image daemon.
    pub program: PathBuf,
    /// For the mounts of images; made with the first of them, and gone with the run directory.
    pub images_dir: PathBuf,
    /// The interpreter for user code; found where absent.
    pub python: Option<PathBuf>,
    /// The most memory of idle instances: the handler cache.
    pub handler_cache: ByteSize,
    /// The most memory of zygotes: the import cache.
    pub import_cache: ByteSize,
    /// The most zygotes that are below no other, of all tenants; as many as the spawner has slots
    /// for where absent.
    pub zygotes: Option<u32>,
    /// What all sandboxes have together, of which each start reserves its part.
    pub capacity: Capacity,
    /// An instance of a function reserves this part of its memory limit (1/N).
    pub overcommit: u32,
    /// Settings of images.
    pub images: ImageSettings,
    /// The control group above those of the sandboxes: `snowmelt/<instance>`.
    pub control_group: String,
    /// For records of the networks of jobs; used by this node alone.
    pub networks_dir: PathBuf,
    /// How the addresses of functions of a job are enforced.
    pub hold: EnforcementChoice,
}

/// A host's agent. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Node {
    pub(crate) inner: Arc<Inner>,
}

/// Numbers of living sandboxes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Query workers: busy and idle.
    pub workers: [u32; 2],
    /// Instances of user code: busy and idle, prewarmed ones included.
    pub instances: [u32; 2],
    /// Zygotes.
    pub zygotes: u32,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) options: Options,
    pub(crate) spawner: Spawner,
    pub(crate) account: Account,
    pub(crate) control_group: String,
    pub(crate) networks_dir: PathBuf,
    pub(crate) hold: EnforcementChoice,
    // Opened in advance, or by the first job with a network. Held for that and for a lookup.
    pub(crate) networks: Mutex<Option<Arc<Networks>>>,
    /// A network for the next job of programs, and how many may be pre-created.
    pub(crate) precreated: Precreated,
    pub(crate) precreated_bound: Arc<tokio::sync::Semaphore>,
    pub(crate) codes: CodeStore,
    pub(crate) images: Arc<Images>,
    // Python is asked for at the first user function only: a plain query needs none.
    python: tokio::sync::OnceCell<Interpreter>,
    pub(crate) imports: ImportCache,
    pub(crate) instances: Arc<Pool<Arc<Instance>>>,
    pub(crate) prewarmed: Prewarmed,
    pub(crate) slots: Slots,
    pub(crate) starts: Starts,
    pub(crate) answers: Answers,
    pub(crate) workers: Arc<Pool<Worker>>,
    pub(crate) busy_instances: Count,
    pub(crate) busy_workers: Count,
}

#[derive(Debug)]
struct Interpreter {
    python: Python,
    installer: Installer,
    runtime: Runtime,
}

/// How many leases are out.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU32);

impl Count {
    pub fn enter(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Node {
    /// Opens the stores; starts only the maintenance of what is idle.
    pub fn new(options: Options, spawner: Spawner) -> Result<Self> {
        let instances = Arc::new(Pool::new(options.handler_cache));
        let slots = options.zygotes.unwrap_or_else(|| spawner.zygote_slots());
        let workers = Arc::new(Pool::new(ByteSize(u64::MAX)));
        let (idle, idle_workers) = (Arc::clone(&instances), Arc::clone(&workers));
        let account = Account::new(options.capacity, options.overcommit, idle, idle_workers);
        let budget = account.zygotes(options.import_cache);
        let idle = Arc::clone(&instances);
        let imports = ImportCache::new(spawner.clone(), account.clone(), budget, slots, idle);
        if let Some(file) = &options.images.ca_file {
            trust_authorities(file)?;
        }
        let inner = Arc::new(Inner {
            codes: CodeStore::open(options.state_dir.join("code"))?,
            images: Arc::new(Images::new(
                options.program.clone(),
                options.state_dir.clone(),
                options.images_dir.clone(),
                options.images.clone(),
            )),
            imports,
            python: tokio::sync::OnceCell::new(),
            control_group: options.control_group.clone(),
            networks_dir: options.networks_dir.clone(),
            hold: options.hold,
            networks: Mutex::default(),
            precreated: Precreated::default(),
            precreated_bound: crate::precreated::bound(),
            instances,
            prewarmed: Prewarmed::default(),
            slots: Slots::default(),
            starts: Starts::default(),
            answers: Answers::default(),
            workers,
            busy_instances: Count::default(),
            busy_workers: Count::default(),
            options,
            spawner,
            account,
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

    /// Resolves and unpacks packages, stores the code: all that an instance needs.
    pub async fn prepare(
        &self,
        tenant: &Tenant,
        code: &SourceCode,
        requirements: &[String],
        imports: &[String],
        reporter: &dyn Reporter,
    ) -> Result<Unit> {
        let prepared = self.environment_of(requirements, imports, reporter).await?;
        let (environment, installer, modules) = prepared;
        let stored = self.inner.codes.put(code)?;
        let interpreter = self.interpreter_and_runtime().await?;
        Ok(Unit::python(tenant, stored, environment, installer, interpreter, modules))
    }

    /// Keeps a wheel of a user's own, and gives the requirement that names it by its content.
    pub async fn keep_wheel(&self, file: String, content: Vec<u8>) -> Result<String> {
        Ok(self.interpreter().await?.installer.keep_wheel(file, content).await?)
    }

    /// Finds out whether versions of packages go together, and remembers which; installs nothing.
    pub async fn resolve(&self, requirements: &[String], reporter: &dyn Reporter) -> Result<()> {
        let Interpreter { installer, .. } = self.interpreter().await?;
        Ok(installer.resolve(requirements, reporter).await?)
    }

    /// Installed packages, their installer, and the modules that a zygote imports of them and of
    /// the standard library.
    pub(crate) async fn environment_of(
        &self,
        requirements: &[String],
        imports: &[String],
        reporter: &dyn Reporter,
    ) -> Result<(Environment, &Installer, Vec<String>)> {
        let Interpreter { python, installer, .. } = self.interpreter().await?;
        let environment = installer.environment(requirements, reporter).await?;
        let mut all = environment.modules.clone();
        all.extend(snowmelt_udf::available(imports, &python.stdlib_modules, &environment.path));
        Ok((environment, installer, all))
    }

    /// Stores code, to be prepared by its digest.
    pub fn store(&self, code: &SourceCode) -> Result<Digest> {
        Ok(self.inner.codes.put(code)?.0)
    }

    /// Whether code of this digest was stored.
    pub fn has_code(&self, digest: &Digest) -> bool {
        self.inner.codes.find(digest).is_ok()
    }

    /// The files of a program that were stored, to give them to another host; blocks.
    pub fn stored_files(&self, digest: &Digest) -> Result<SourceCode> {
        self.inner.codes.files(digest)
    }

    /// Finds what a program of another language needs to run code that was stored.
    pub async fn prepare_program(
        &self,
        tenant: &Tenant,
        code: &Digest,
        request: &ProgramRequest,
        limits: &InstanceLimits,
    ) -> Result<Unit> {
        let (stored, began) = ((code.clone(), self.inner.codes.find(code)?), Instant::now());
        let image = match &request.image {
            Some(image) => Some(self.inner.images.mount_with_config(image).await?),
            None => None,
        };
        let mounted = image.as_ref().map(|(mounted, _)| mounted.at.clone());
        let python = match request.language {
            Language::Python => Some(self.interpreter_and_runtime().await?.1.path.clone()),
            _ => None,
        };
        let folder = self.inner.options.state_dir.join("runtimes");
        let runtimes = programs::Runtimes { folder, python };
        let (folder, request, limits) = (stored.1.clone(), request.clone(), limits.clone());
        // The first one of Java compiles the runtime.
        let program = move || programs::prepare(&runtimes, &folder, &request, image, &limits);
        let prepared = tokio::task::spawn_blocking(program).await;
        let prepared = prepared.map_err(|error| Error::State {
            path: stored.1.clone(),
            source: std::io::Error::other(error),
        })?;
        match (prepared, mounted) {
            (Err(error), Some(image)) => match self.inner.images.why(&image, began).await {
                Some(report) => Err(Error::Report(Box::new(report))),
                None => Err(error),
            },
            (prepared, _) => Ok(Unit::program(tenant, stored, prepared?)),
        }
    }

    /// Why blocks of the image of a unit could not be had since then, if that was so: what failed
    /// in it failed for that reason, without knowing it.
    pub async fn why_image_failed(&self, unit: &Unit, since: Instant) -> Option<ErrorReport> {
        for image in unit.images() {
            if let Some(report) = self.inner.images.why(image, since).await {
                return Some(report);
            }
        }
        None
    }

    /// The interpreter that runs user code.
    pub async fn python(&self) -> Result<&Python> {
        Ok(&self.interpreter().await?.python)
    }

    /// Keeps so many instances of a unit prewarmed: loaded, paused, and replaced when taken.
    pub fn prewarm(&self, unit: &Unit, limits: &Arc<InstanceLimits>, load: &Load, count: usize) {
        self.inner.prewarmed.ask(unit, limits, load, count);
        self.inner.prewarmed.replenish(&self.inner, Instant::now());
    }

    /// Grows a zygote with all that a unit declares, unless there is one: what many starts in
    /// short time would do by themselves.
    pub async fn warm(&self, unit: &Unit) {
        if let WarmStart::Zygote(forked) = &unit.start {
            self.inner.imports.warm(&forked.want, &forked.source).await;
        }
    }

    /// Opens what jobs with a network need, ahead of the first: to load the programs that hold
    /// functions to their addresses takes the kernel some time. A job that asks meanwhile waits; a
    /// failure is reported to each caller.
    pub fn open_networks(&self) {
        let inner = Arc::clone(&self.inner);
        tokio::task::spawn_blocking(move || {
            if let Err(error) = inner.networks() {
                tracing::warn!(%error, "jobs with a network cannot run on this host");
            }
        });
    }

    /// The account of this host's memory, processor and instances.
    pub fn ledger(&self) -> &Ledger {
        &self.inner.account.ledger
    }

    /// Idle instances of a unit, prewarmed ones included.
    pub fn idle_instances(&self, unit: &Unit, limits: &InstanceLimits) -> usize {
        let key = limits.key(&unit.digest);
        self.inner.instances.count(&key) + self.inner.prewarmed.count(&key)
    }

    /// Whether the mounts of its images are dead, because what served them was given up: it has to
    /// be prepared again.
    pub fn is_dead(&self, unit: &Unit) -> bool {
        self.inner.images.is_dead(&unit.root)
    }

    /// Why no instance of a unit is idle any more.
    pub fn removal_reason(&self, unit: &Unit, limits: &InstanceLimits) -> Option<RemovalReason> {
        self.inner.instances.removal_reason(&limits.key(&unit.digest))
    }

    /// Ends the idle instances of a unit, because its function was replaced or removed.
    pub fn forget(&self, unit: &Unit, limits: &InstanceLimits) {
        let key = limits.key(&unit.digest);
        self.inner.prewarmed.forget(&key);
        drop(self.inner.instances.remove(&key));
    }

    /// Numbers of living sandboxes.
    pub fn usage(&self) -> Usage {
        let short = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let (parked, _) = self.inner.prewarmed.figures();
        let idle = short(self.inner.instances.figures().idle).saturating_add(parked);
        Usage {
            workers: [self.inner.busy_workers.get(), short(self.inner.workers.figures().idle)],
            instances: [self.inner.busy_instances.get(), idle],
            zygotes: short(self.inner.imports.len() as u64),
        }
    }

    /// How the process does that makes sandboxes.
    pub fn spawner(&self) -> SpawnerHealth {
        let snowmelt_sandbox::SpawnerHealth { processes, replaced, failure } =
            self.inner.spawner.health();
        SpawnerHealth { processes, replaced, failure }
    }

    /// How the caches do.
    pub fn figures(&self) -> NodeFigures {
        let inner = &self.inner;
        let (parked, parked_bytes) = inner.prewarmed.figures();
        NodeFigures {
            busy: inner.busy_instances.get(),
            parked,
            parked_bytes,
            handlers: inner.instances.figures(),
            busy_workers: inner.busy_workers.get(),
            workers: inner.workers.figures(),
            installs: inner.installs(),
            imports: inner.imports.figures(Instant::now()),
            starts: inner.starts.figures(),
            ledger: crate::figures::of_ledger(&inner.account.ledger),
        }
    }

    /// Ends every sandbox, busy or not, and the spawner; returns when nothing is left.
    pub async fn stop(&self) -> Result<()> {
        self.inner.prewarmed.clear();
        drop(self.inner.instances.drain());
        drop(self.inner.workers.drain());
        self.inner.imports.clear();
        self.inner.spawner.shutdown().await?;
        self.inner.images.end();
        // Last, so that no function is left that it does not hold any more.
        self.inner.close_networks().await
    }

    pub(crate) async fn interpreter_and_runtime(&self) -> Result<(&Python, &Runtime)> {
        let interpreter = self.interpreter().await?;
        Ok((&interpreter.python, &interpreter.runtime))
    }

    async fn interpreter(&self) -> Result<&Interpreter> {
        self.inner.python.get_or_try_init(|| self.inner.open_interpreter()).await
    }
}

impl Inner {
    async fn open_interpreter(&self) -> Result<Interpreter> {
        let state = &self.options.state_dir;
        let python = Python::discover(self.options.python.as_deref(), state)?;
        let installer = Installer::new(state.join("packages"), python.clone())?;
        let runtime = snowmelt_package::runtime_files(state, &python)?;
        Ok(Interpreter { python, installer, runtime })
    }

    fn maintain(self: &Arc<Self>, now: Instant) {
        drop(self.instances.expired(now));
        drop(self.workers.expired(now));
        // What has ended by itself, or with a lane of the spawner.
        drop(self.instances.discard(|instance| !instance.is_sound()));
        drop(self.workers.discard(|worker| !worker.is_alive()));
        self.imports.maintain(now);
        self.prewarmed.replenish(self, now);
    }

    fn installs(&self) -> InstallFigures {
        let Some(interpreter) = self.python.get() else { return InstallFigures::default() };
        let counts = interpreter.installer.counts();
        InstallFigures {
            environment_hits: counts.environment_hits,
            environment_misses: counts.environment_misses,
            wheel_hits: counts.wheel_hits,
            wheel_misses: counts.wheel_misses,
            bytes: counts.bytes.bytes(),
        }
    }
}
