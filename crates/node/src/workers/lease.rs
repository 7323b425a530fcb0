//! The leases of query workers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use snowmelt_ledger::{Reservation, Use};
use snowmelt_types::{ByteSize, Digest, Outcome};

use super::Workers;
use super::worker::{Worker, WorkerSpec};
use crate::times::WORKER_KEPT;
use crate::{Error, Result};

/// The exclusive use of a worker until it is returned. Dropping the lease destroys the sandbox.
#[derive(Debug)]
pub struct WorkerLease {
    workers: Arc<Workers>,
    key: Digest,
    // `None` only after the worker was returned.
    worker: Option<Worker>,
    /// True if the sandbox was started for this lease.
    pub cold: bool,
    /// When the lease was requested.
    pub asked: Instant,
    /// When the worker was ready.
    pub ready: Instant,
}

impl WorkerLease {
    pub(crate) fn new(
        workers: Arc<Workers>,
        key: Digest,
        worker: Worker,
        cold: bool,
        asked: Instant,
    ) -> Self {
        workers.busy.enter();
        Self { workers, key, worker: Some(worker), cold, asked, ready: Instant::now() }
    }

    /// Opens a new connection to the worker, which carries one task.
    pub fn connect(&self) -> snowmelt_wire::Result<std::os::unix::net::UnixStream> {
        let worker = self.worker.as_ref().ok_or(snowmelt_wire::Error::Closed)?;
        Ok(worker.sandbox.connect()?)
    }

    /// Books the worker's room for this use until the worker is returned. An idle worker serves any
    /// query.
    pub fn used_for(mut self, use_: Use) -> Self {
        if let Some(worker) = &mut self.worker {
            worker.used_for(use_);
        }
        self
    }

    /// Returns the most memory that the worker held; `None` where the kernel does not count it.
    pub fn memory_peak(&self) -> Option<ByteSize> {
        self.worker.as_ref()?.sandbox.memory_peak()
    }

    /// Returns why the worker ended and its last lines of output, if it ends within `patience`;
    /// otherwise `None`.
    pub async fn ended(&self, patience: Duration) -> Option<(Outcome, Vec<String>)> {
        let worker = self.worker.as_ref()?;
        let outcome = tokio::time::timeout(patience, worker.sandbox.wait()).await.ok()?;
        Some((outcome, worker.log.take().last_lines(8)))
    }

    /// Returns the worker for the next task, and wakes those who wait for an idle worker.
    pub fn give_back(self) {
        let workers = Arc::clone(&self.workers);
        self.put_back();
        workers.account.worker_is_idle();
    }

    /// Returns a worker that was not used, and tells nobody: a caller that takes a worker, and
    /// finds no room for the rest of its needs, would wake itself.
    pub fn put_back(mut self) {
        let may_be_idle = |worker: &Worker| {
            worker.room.is_some() && worker.is_alive() && !self.workers.account.ledger.is_wanted()
        };
        if let Some(mut worker) = self.worker.take().filter(may_be_idle) {
            worker.used_for(Use::Worker);
            drop(self.workers.idle.put(self.key.clone(), worker, WORKER_KEPT, ByteSize(0)));
            // A request that began to wait meanwhile did not find this worker.
            self.workers.account.make_room();
        }
    }
}

impl Drop for WorkerLease {
    fn drop(&mut self) {
        self.workers.busy.leave();
    }
}

impl Workers {
    /// Leases an idle query worker with the limits of `spec`; `None` if there is none.
    pub(crate) fn idle_one(
        self: &Arc<Self>,
        spec: &WorkerSpec,
        asked: Instant,
    ) -> Option<WorkerLease> {
        let key = spec.key();
        // A miss is counted where a worker is started.
        if self.idle.count(&key) == 0 {
            return None;
        }
        self.take(key, asked)
    }

    fn take(self: &Arc<Self>, key: Digest, asked: Instant) -> Option<WorkerLease> {
        while let Some(worker) = self.idle.take(&key) {
            if worker.is_alive() {
                let workers = Arc::clone(self);
                return Some(WorkerLease::new(workers, key, worker, false, asked));
            }
        }
        None
    }

    /// Leases a query worker: an idle one if there is one, for which nothing more is reserved, or
    /// else a worker that is executed now.
    pub(crate) async fn lease(
        self: &Arc<Self>,
        spec: &WorkerSpec,
        room: Option<Reservation>,
        asked: Instant,
    ) -> Result<WorkerLease> {
        if let Some(idle) = self.take(spec.key(), asked) {
            return Ok(idle);
        }
        let binary = &self.program;
        if !binary.exists() {
            return Err(Error::QueryProgramMissing { path: binary.clone() });
        }
        let sandbox = spec.sandbox(binary);
        // A start is rare beside the use of an idle worker, and its future is large.
        let sandbox = self.spawner.start(sandbox).boxed().await?;
        let worker = Worker::new(sandbox, room)?;
        Ok(WorkerLease::new(Arc::clone(self), spec.key(), worker, true, asked))
    }
}
