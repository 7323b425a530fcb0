//! The node: its stores, its pools, and the leases that it gives.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use snowmelt_package::{Installer, Python, Reporter, Runtime};
use snowmelt_sandbox::{ForkSpec, Limits, Spawner};
use snowmelt_types::SandboxId;
use snowmelt_wire::Code;

use crate::instance::Instance;
use crate::pool::Pool;
use crate::unit::ENTRY;
use crate::worker::Worker;
use crate::zygotes::Zygotes;
use crate::{CodeStore, InstanceLease, InstanceLimits, Result, Unit, WorkerLease, WorkerSpec};

/// How long a zygote without forks is kept.
const ZYGOTE_KEPT: Duration = Duration::from_secs(600);

/// How often idle things are looked through.
const EVICTION_INTERVAL: Duration = Duration::from_secs(1);

/// Open files of an instance of user code.
const OPEN_FILES: u64 = 1024;

/// Where a node keeps its things.
#[derive(Clone, Debug)]
pub struct Options {
    /// Packages, code and the Python runtime live here, by content.
    pub state_dir: PathBuf,
    /// The binary that runs as a query worker.
    pub worker_binary: PathBuf,
    /// The interpreter for user code; found where absent.
    pub python: Option<PathBuf>,
}

/// A host's agent. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Node {
    inner: Arc<Inner>,
}

/// How much is alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Query workers: busy and idle.
    pub workers: [u32; 2],
    /// Instances of user code: busy and idle.
    pub instances: [u32; 2],
    /// Zygotes.
    pub zygotes: u32,
}

#[derive(Debug)]
pub(crate) struct Inner {
    options: Options,
    spawner: Spawner,
    codes: CodeStore,
    // Python is asked for at the first user function only: a plain query needs none.
    python: tokio::sync::OnceCell<Interpreter>,
    zygotes: Zygotes,
    pub(crate) instances: Pool<Instance>,
    pub(crate) workers: Pool<Worker>,
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
    /// Opens the stores; starts nothing but the eviction of what is idle.
    pub fn new(options: Options, spawner: Spawner) -> Result<Self> {
        let inner = Arc::new(Inner {
            codes: CodeStore::open(options.state_dir.join("code"))?,
            zygotes: Zygotes::new(spawner.clone()),
            python: tokio::sync::OnceCell::new(),
            instances: Pool::default(),
            workers: Pool::default(),
            busy_instances: Count::default(),
            busy_workers: Count::default(),
            options,
            spawner,
        });
        let weak = Arc::downgrade(&inner);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(EVICTION_INTERVAL).await;
                let Some(inner) = weak.upgrade() else { return };
                inner.evict(Instant::now());
            }
        });
        Ok(Self { inner })
    }

    /// Resolves and unpacks packages, stores the code: all that an instance needs.
    pub async fn prepare(
        &self,
        code: &Code,
        requirements: &[String],
        imports: &[String],
        reporter: &dyn Reporter,
    ) -> Result<Unit> {
        let interpreter = self.interpreter().await?;
        let environment = interpreter.installer.environment(requirements, reporter).await?;
        let stored = self.inner.codes.put(code)?;
        let mut all = environment.modules.clone();
        let Interpreter { python, runtime, .. } = interpreter;
        let there = snowmelt_udf::available(imports, &python.stdlib_modules, &environment.path);
        all.extend(there);
        all.sort();
        all.dedup();
        Ok(Unit::new(stored, environment, python, runtime, all))
    }

    /// The interpreter that runs user code.
    pub async fn python(&self) -> Result<&Python> {
        Ok(&self.interpreter().await?.python)
    }

    /// An instance of user code: idle if there is one, forked from its zygote otherwise.
    pub async fn lease_instance(
        &self,
        unit: &Unit,
        limits: &InstanceLimits,
    ) -> Result<InstanceLease> {
        let asked = Instant::now();
        let key = limits.key(&unit.digest);
        while let Some(instance) = self.inner.instances.take(&key) {
            if instance.is_alive() {
                let inner = Arc::clone(&self.inner);
                return Ok(InstanceLease::new(inner, key, limits.idle, instance, false, asked));
            }
        }
        let forked = self.inner.zygotes.fork(unit, || fork_spec(unit, limits)).await?;
        let instance = Instance::new(forked.0, forked.1)?;
        Ok(InstanceLease::new(Arc::clone(&self.inner), key, limits.idle, instance, true, asked))
    }

    /// A query worker: idle if there is one, executed otherwise.
    pub async fn lease_worker(&self, spec: &WorkerSpec) -> Result<WorkerLease> {
        let asked = Instant::now();
        let key = spec.key();
        while let Some(worker) = self.inner.workers.take(&key) {
            if worker.is_alive() {
                let inner = Arc::clone(&self.inner);
                return Ok(WorkerLease::new(inner, key, worker, false, asked));
            }
        }
        let sandbox = spec.sandbox(&self.inner.options.worker_binary);
        let worker = Worker::new(self.inner.spawner.start(sandbox).await?)?;
        Ok(WorkerLease::new(Arc::clone(&self.inner), key, worker, true, asked))
    }

    /// Idle instances of a unit.
    pub fn idle_instances(&self, unit: &Unit, limits: &InstanceLimits) -> usize {
        self.inner.instances.count(&limits.key(&unit.digest))
    }

    /// Ends the idle instances of a unit, because its function was replaced or removed.
    pub fn forget(&self, unit: &Unit, limits: &InstanceLimits) {
        drop(self.inner.instances.remove(&limits.key(&unit.digest)));
    }

    /// How much is alive.
    pub fn usage(&self) -> Usage {
        let short = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Usage {
            workers: [self.inner.busy_workers.get(), short(self.inner.workers.len())],
            instances: [self.inner.busy_instances.get(), short(self.inner.instances.len())],
            zygotes: short(self.inner.zygotes.len()),
        }
    }

    /// Ends every sandbox, busy or not, and the spawner; returns when nothing is left.
    pub async fn stop(&self) -> Result<()> {
        drop(self.inner.instances.drain());
        drop(self.inner.workers.drain());
        self.inner.zygotes.clear();
        Ok(self.inner.spawner.shutdown().await?)
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

    fn evict(&self, now: Instant) {
        drop(self.instances.expired(now));
        drop(self.workers.expired(now));
        self.zygotes.evict(ZYGOTE_KEPT);
    }
}

fn fork_spec(unit: &Unit, limits: &InstanceLimits) -> ForkSpec {
    ForkSpec {
        id: SandboxId::new(),
        root: unit.root(),
        env: limits.environment.clone().into_iter().collect(),
        limits: Limits {
            memory: limits.memory,
            cpu: limits.cpu,
            pids: limits.pids,
            scratch: limits.scratch,
            open_files: OPEN_FILES,
        },
        entry: ENTRY.to_owned(),
        sys_path: unit.python_path.clone(),
    }
}
