//! Query workers: the program `snowmelt-query` in a sandbox, executed afresh or taken again idle.
//!
//! A worker holds no state between tasks and has no path to any data: it is granted open files and
//! connected sockets for each task, so an idle one serves any query.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use snowmelt_ledger::{Amount, Reservation};
use snowmelt_sandbox::{
    Bind, Limits, Network, Policy, ProcessSettings, Root, Sandbox, SandboxSpec,
};
use snowmelt_types::{ByteSize, CpuMillis, Digest, Outcome, SandboxId};

use crate::log::{LogCollector, PLATFORM_LOG};
use crate::node::Inner;
use crate::{Error, Result};

pub(crate) const BINARY: &str = "/opt/snowmelt/bin/snowmelt-query";

/// How long an idle worker is kept.
pub(crate) const KEPT: Duration = Duration::from_secs(60);

/// How long to wait for the report that a sandbox ended, once its connection failed.
pub(crate) const END_REPORTED_WITHIN: Duration = Duration::from_millis(500);

/// Files that name resolution and TLS need; only a worker that reads from S3 gets them.
const NETWORK_FILES: [&str; 6] = [
    "/etc/ssl",
    "/etc/ca-certificates",
    "/etc/pki",
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
];

/// What a worker may use. Workers of the same spec are interchangeable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerSpec {
    /// Memory limit.
    pub memory: ByteSize,
    /// Processor share.
    pub cpu: CpuMillis,
    /// True if it reads from S3.
    pub network: bool,
}

impl WorkerSpec {
    /// What it reserves: all of its limit, because what a worker sorts and joins fills it.
    pub(crate) fn amount(&self) -> Amount {
        Amount::one(self.memory, self.cpu)
    }

    pub(crate) fn key(&self) -> Digest {
        Digest::of(format!("{self:?}"))
    }

    pub(crate) fn sandbox(&self, binary: &Path) -> SandboxSpec {
        let mut binds = vec![Bind { source: binary.to_owned(), target: BINARY.into() }];
        if self.network {
            let present = NETWORK_FILES.iter().filter(|file| Path::new(file).exists());
            binds.extend(present.map(|file| Bind { source: file.into(), target: file.into() }));
        }
        SandboxSpec {
            id: SandboxId::new(),
            root: Root { binds, ..Root::default() },
            command: vec![BINARY.to_owned()],
            env: Vec::new(),
            limits: Limits {
                memory: self.memory,
                cpu: self.cpu,
                pids: 64,
                scratch: ByteSize::mib(16),
                // A descriptor for each file that its task reads.
                open_files: 65_536,
            },
            network: if self.network { Network::Host } else { Network::None },
            policy: Policy::Worker,
            process: ProcessSettings::default(),
        }
    }
}

/// A worker's sandbox.
#[derive(Debug)]
pub(crate) struct Worker {
    sandbox: Sandbox,
    log: LogCollector,
    // None in room that its query keeps. Given back last, after the sandbox.
    room: Option<Reservation>,
}

impl Worker {
    pub fn new(mut sandbox: Sandbox, room: Option<Reservation>) -> Result<Self> {
        let read_end = sandbox.take_log().ok_or(snowmelt_wire::Error::Closed)?;
        let log = LogCollector::new(read_end, PLATFORM_LOG).map_err(snowmelt_wire::Error::from)?;
        Ok(Self { sandbox, log, room })
    }

    pub fn is_alive(&self) -> bool {
        self.sandbox.wait().now_or_never().is_none()
    }
}

/// Exclusive use of a worker until it is returned. Dropping it destroys the sandbox.
#[derive(Debug)]
pub struct WorkerLease {
    node: Arc<Inner>,
    key: Digest,
    // `None` only after it was returned.
    worker: Option<Worker>,
    /// True if the sandbox was started for this lease.
    pub cold: bool,
    /// When it was requested.
    pub asked: Instant,
    /// When it was ready.
    pub ready: Instant,
}

impl WorkerLease {
    pub(crate) fn new(
        node: Arc<Inner>,
        key: Digest,
        worker: Worker,
        cold: bool,
        asked: Instant,
    ) -> Self {
        node.busy_workers.enter();
        Self { node, key, worker: Some(worker), cold, asked, ready: Instant::now() }
    }

    /// A new connection, which carries one task.
    pub fn connect(&self) -> Result<std::os::unix::net::UnixStream> {
        let worker = self.worker.as_ref().ok_or(snowmelt_wire::Error::Closed)?;
        Ok(worker.sandbox.connect().map_err(snowmelt_wire::Error::from)?)
    }

    /// The most memory that it held.
    pub fn memory_peak(&self) -> Option<ByteSize> {
        self.worker.as_ref()?.sandbox.memory_peak()
    }

    /// Why it came to its end and what it wrote last; `None` if it did not.
    pub async fn ended(&self, patience: Duration) -> Option<(Outcome, Vec<String>)> {
        let worker = self.worker.as_ref()?;
        let outcome = tokio::time::timeout(patience, worker.sandbox.wait()).await.ok()?;
        Some((outcome, worker.log.take().last_lines(8)))
    }

    /// Returns the worker for the next task.
    pub fn give_back(self) {
        let node = Arc::clone(&self.node);
        self.put_back();
        node.account.worker_is_idle();
    }

    /// Returns a worker that was not used, and tells nobody: who takes one, and finds no room for
    /// what else it needs, would wake itself.
    pub(crate) fn put_back(mut self) {
        let may_be_idle = |worker: &Worker| {
            worker.room.is_some() && worker.is_alive() && !self.node.account.ledger.is_wanted()
        };
        if let Some(worker) = self.worker.take().filter(may_be_idle) {
            drop(self.node.workers.put(self.key.clone(), worker, KEPT, ByteSize(0)));
            // Whoever began to wait meanwhile did not find it.
            self.node.account.make_room();
        }
    }
}

impl Drop for WorkerLease {
    fn drop(&mut self) {
        self.node.busy_workers.leave();
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Wire(error.into())
    }
}
