//! A node with one user file on it, and one timed call.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use snowmelt_node::{Capacity, InstanceLease, InstanceLimits, Node, Options as NodeOptions, Unit};
use snowmelt_package::InstallProgress;
use snowmelt_sandbox::Spawner;
use snowmelt_types::{ByteSize, Tenant};
use snowmelt_wire::{Call, Load, Mode, OnError, SourceCode};

use super::Options;

/// No call takes longer, however many wait.
const LIMIT: Duration = Duration::from_secs(120);

/// A node, and the user's file with what it needs.
#[derive(Clone)]
pub struct Host {
    pub node: Node,
    /// All sandboxes are below it.
    pub spawner_pid: u32,
    code: SourceCode,
    packages: Vec<String>,
    imports: Vec<String>,
}

/// One call, from the request on.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    /// Until the first line of the user's code: of the file where it was executed for this call,
    /// of the handler where it had been before.
    pub first_line: Duration,
    /// Until the answer was here.
    pub answer: Duration,
    /// Of which the handler was running.
    pub own: Duration,
}

impl Host {
    pub fn open(options: &Options, spawner: Spawner, spawner_pid: u32) -> Result<Self> {
        let node = Node::new(
            NodeOptions {
                state_dir: std::path::absolute(&options.state)?,
                shared_dir: None,
                trusted: None,
                worker_binary: std::env::current_exe()?,
                program: std::env::current_exe()?,
                images_dir: std::path::absolute(&options.state)?.join("mounts"),
                python: None,
                // No handler runs in an image.
                images: snowmelt_node::ImageSettings::default(),
                // Nothing that is measured may be let go of.
                handler_cache: ByteSize::mib(64 << 10),
                import_cache: ByteSize::mib(4096),
                zygotes: None,
                // What is measured is the start, not the wait for room.
                capacity: Capacity {
                    memory: ByteSize::mib(1 << 20),
                    instances: u32::MAX,
                    cpu: None,
                },
                overcommit: snowmelt_node::OVERCOMMIT,
                enforcement: snowmelt_node::EnforcementChoice::default(),
                // No job with a network is run.
                control_group: String::new(),
                networks_dir: std::path::absolute(&options.state)?.join("networks"),
            },
            spawner,
        )?;
        let text = fs::read_to_string(&options.file).context("cannot read the handler's file")?;
        let code = SourceCode::Source { file: "handler.py".to_owned(), text };
        let packages = options.packages.clone();
        let imports = options.imports.clone();
        Ok(Self { node, spawner_pid, code, packages, imports })
    }

    /// Resolves and unpacks what is not there yet.
    pub async fn prepare(&self) -> Result<Unit> {
        let report = |progress: &InstallProgress| eprintln!("{progress}");
        Ok(self
            .node
            .preparation()
            .prepare(&Tenant::default(), &self.code, &self.packages, &self.imports, &report)
            .await?)
    }

    /// An instance that is kept for `idle` when it is given back.
    pub async fn lease(&self, unit: &Unit, idle: Duration) -> Result<InstanceLease> {
        Ok(self.node.lease_instance(unit, &limits(idle)).await?)
    }

    /// Many instances by one request, none of which is kept.
    pub async fn lease_many(&self, unit: &Unit, count: usize) -> Result<Vec<InstanceLease>> {
        let leases = self.node.lease_instances(unit, &limits(Duration::ZERO), count).await;
        Ok(leases.into_iter().collect::<Result<_, _>>()?)
    }

    /// Prewarms instances from now on, for leases that are not kept.
    pub fn prewarm(&self, unit: &Unit, count: usize) {
        self.node.prewarm(unit, &limits(Duration::ZERO), &load(), count);
    }

    /// How many of those wait.
    pub fn prewarmed(&self, unit: &Unit) -> usize {
        self.node.idle_instances(unit, &limits(Duration::ZERO))
    }

    /// An instance that answers one call, still leased.
    pub async fn one(&self, unit: &Unit, idle: Duration) -> Result<(InstanceLease, Timed)> {
        self.one_within(unit, &limits(idle)).await
    }

    /// The same with limits of one's own.
    pub async fn one_within(
        &self,
        unit: &Unit,
        limits: &Arc<InstanceLimits>,
    ) -> Result<(InstanceLease, Timed)> {
        let asked = Asked::now();
        let mut lease = self.node.lease_instance(unit, limits).await?;
        let timed = asked.call(&mut lease, 0.0).await?;
        Ok((lease, timed))
    }
}

/// The moment of a request, on the clock that the handler reads too.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    here: Instant,
    monotonic: Duration,
}

impl Asked {
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        let monotonic = Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32);
        Self { here: Instant::now(), monotonic }
    }

    /// Calls the handler, which then takes `hold` seconds.
    pub async fn call(self, lease: &mut InstanceLease, hold: f64) -> Result<Timed> {
        let event = serde_json::value::to_raw_value(&hold)?;
        let call = Call { invocation: "bench".to_owned(), event };
        let said = lease.call(&load(), &call, LIMIT).await?;
        let answer = self.here.elapsed();
        let said: Value = serde_json::from_str(said.json())?;
        let stamp = |index: usize| said.get(index).and_then(Value::as_u64);
        let (file, handler) = stamp(0).zip(stamp(1)).context("the handler gives its times")?;
        let left = stamp(2).context("the handler gives the time of its end")?;
        let since =
            |nanoseconds: u64| Duration::from_nanos(nanoseconds).checked_sub(self.monotonic);
        let first_line =
            since(file).or(since(handler)).context("the handler's clock is another")?;
        let own = Duration::from_nanos(left.saturating_sub(handler));
        Ok(Timed { first_line, answer, own })
    }
}

/// Those of every instance that is measured but for one row.
pub fn limits(idle: Duration) -> Arc<InstanceLimits> {
    Arc::new(InstanceLimits { idle, ..InstanceLimits::default() })
}

/// A zygote keeps the spare that it made for [`limits`], which does not fit these.
pub fn unlike_the_spare() -> Arc<InstanceLimits> {
    let like = InstanceLimits { idle: Duration::ZERO, ..InstanceLimits::default() };
    Arc::new(InstanceLimits { pids: like.pids + 1, ..like })
}

fn load() -> Load {
    Load {
        mode: Mode::Function,
        code: Unit::code_path(),
        function: "handler".to_owned(),
        batch: None,
        on_error: OnError::Raise,
    }
}
