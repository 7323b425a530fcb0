//! Starts the tasks of one query in sandboxes: a worker for each task, and beside it an instance of
//! each of its UDFs. For each UDF, the instances that all tasks need at first are one request.
//!
//! Whatever ends a task early (an error, a cancelled query, a dropped future) drops its leases, and
//! a dropped lease destroys its sandbox: only a sandbox that ended well is taken again.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::try_join_all;
use snowmelt_ledger::Reservation;
use snowmelt_node::{Error, InstanceLease, InstanceRooms, LOAD_LIMIT, WorkerLease, WorkerSpec};
use snowmelt_rpc::trace::SPANS;
use snowmelt_types::{ByteSize, Code, ErrorReport, Report, Tenant, micros};
use snowmelt_wire::{
    Grants, RequestFailure, SandboxUse, Task, TaskAsk, UdfConnection, UdfGrant, hand_over,
};
use tracing::Span;

use super::errors::{lost, no_output, not_started, worker_ended};
use super::limits::WorkerLimits;
use super::query_room::{QueryRoom, RoomPermit, SandboxOrigin, TaskRoom};
use super::times::{END_KNOWN_TIMEOUT, END_REPORT_TIMEOUT};
use super::udf::{BoundUdf, UdfBinding};
use crate::file_rights::{FileOpener, FileRights};
use crate::host::TaskHost;
use crate::peers::Peers;

/// The share of a worker's memory limit that its operators may reserve, in percent. The rest is for
/// buffers that they do not account for, and for the program itself.
pub(crate) const RESERVABLE_PERCENT: u64 = 70;

/// An instance of a UDF beside a worker, for one task.
#[derive(Debug)]
struct Beside {
    name: String,
    lease: InstanceLease,
    // When its code was loaded, and the processor time of the instance by then.
    loaded: Instant,
    cpu: Option<Duration>,
}

/// Runs the tasks of one query.
#[derive(Debug)]
pub struct QueryRunner {
    pub(crate) host: TaskHost,
    pub(crate) query: String,
    pub(crate) tenant: Tenant,
    pub(crate) accepted: Instant,
    pub(crate) limits: WorkerLimits,
    pub(crate) udfs: BTreeMap<String, BoundUdf>,
    pub(crate) room: QueryRoom,
    // Instances that the driver itself calls; held until the query ends.
    for_driver: Mutex<Vec<Beside>>,
    // The output of UDFs, by name; shown to the user when the query ends.
    written: Mutex<BTreeMap<String, String>>,
    cold: AtomicU32,
    warm: AtomicU32,
    /// Opens files of this machine for the query's driver and tasks.
    pub(crate) files: Arc<FileOpener>,
    // The other hosts that may run its tasks.
    pub(crate) peers: Option<Arc<dyn Peers>>,
}

impl QueryRunner {
    /// Returns a runner for one query of a tenant, which was accepted at `accepted`.
    pub fn new(
        host: TaskHost,
        query: String,
        tenant: Tenant,
        accepted: Instant,
        limits: WorkerLimits,
        udfs: impl IntoIterator<Item = UdfBinding>,
    ) -> Self {
        Self {
            host,
            query,
            tenant,
            accepted,
            limits,
            room: QueryRoom::default(),
            udfs: udfs.into_iter().map(|udf| (udf.name.clone(), BoundUdf::new(udf))).collect(),
            for_driver: Mutex::default(),
            written: Mutex::default(),
            cold: AtomicU32::new(0),
            warm: AtomicU32::new(0),
            files: Arc::default(),
            peers: None,
        }
    }

    /// Lets the query's tasks run on other hosts too.
    pub fn on_hosts(self, peers: Arc<dyn Peers>) -> Self {
        Self { peers: Some(peers), ..self }
    }

    /// Opens the query's files with these rights, and not with those of the server.
    pub fn with_rights(self, rights: FileRights) -> Self {
        Self { files: Arc::new(FileOpener::new(rights)), ..self }
    }

    /// Returns the numbers of sandboxes that were started, and of idle ones that were taken again.
    pub fn starts(&self) -> (u32, u32) {
        (self.cold.load(Ordering::Relaxed), self.warm.load(Ordering::Relaxed))
    }

    /// Returns the standard output and error of each UDF, shortened.
    pub fn written(&self) -> BTreeMap<String, String> {
        for udf in self.for_driver.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            self.keep_written(&udf.name, &udf.lease);
        }
        self.written.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the output that UDFs wrote since the last call.
    pub(crate) fn take_written(&self) -> BTreeMap<String, String> {
        std::mem::take(&mut *self.written.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds the sandboxes that a task used on another host, and the output of its UDFs.
    pub(crate) fn add_remote(&self, used: &[SandboxUse], written: BTreeMap<String, String>) {
        for one in used {
            self.count(one.cold);
        }
        for (name, text) in written {
            self.keep_text(&name, &text);
        }
    }

    async fn worker(
        &self,
        spec: &WorkerSpec,
        place: SandboxOrigin<WorkerLease, Option<Reservation>>,
    ) -> Result<WorkerLease, RequestFailure> {
        let lease = match place {
            SandboxOrigin::Idle(lease) => lease,
            SandboxOrigin::New(room) => {
                let leased = self.host.node.lease_worker(spec, room, Instant::now()).await;
                leased.map_err(|error| lost(&error))?
            }
        };
        self.count(lease.cold);
        Ok(lease)
    }

    async fn udf(
        &self,
        name: &str,
        place: SandboxOrigin<InstanceLease, InstanceRooms>,
    ) -> Result<(Beside, UdfConnection), Error> {
        let Some(bound) = self.udfs.get(name) else {
            let message = format!("the plan calls `{name}`, which the query does not have");
            return Err(Error::Report(Box::new(ErrorReport::new(Code::INTERNAL, message))));
        };
        let udf = &bound.udf;
        let lease = match place {
            SandboxOrigin::Idle(lease) => lease,
            SandboxOrigin::New(rooms) => {
                bound.lease(&self.host.node, rooms, self.tasks_with_room()).await?
            }
        };
        self.count(lease.cold);
        // The start of a fresh instance has cost the time that it has used by now.
        let cpu = if lease.cold { Some(Duration::ZERO) } else { lease.cpu_time() };
        let socket = lease.open(&udf.load, LOAD_LIMIT).await?;
        let beside = Beside { name: name.to_owned(), lease, loaded: Instant::now(), cpu };
        Ok((beside, UdfConnection { socket, timeout: udf.timeout }))
    }

    fn count(&self, cold: bool) {
        let counter = if cold { &self.cold } else { &self.warm };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn since_accepted(&self, moment: Instant) -> u64 {
        micros(moment.saturating_duration_since(self.accepted))
    }

    fn keep_written(&self, name: &str, lease: &InstanceLease) {
        self.keep_text(name, &lease.take_log().text);
    }

    fn keep_text(&self, name: &str, text: &str) {
        const MOST: usize = 64 << 10;
        if text.is_empty() {
            return;
        }
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = written.entry(name.to_owned()).or_default();
        let room = MOST.saturating_sub(kept.len());
        kept.extend(text.chars().take(room));
    }

    /// Returns the real reason of a failed attempt: a sandbox that ended explains more than the
    /// connection that broke because of it.
    async fn explain(&self, failure: RequestFailure, started: &StartedTask) -> RequestFailure {
        // The worker is well: what it was to read is gone.
        if !failure.outputs.is_empty() {
            return failure;
        }
        let code = if failure.lost { Code::WORKER_LOST } else { failure.report.known_code() };
        // Code that failed gave its own reason; only a broken connection is worth the wait.
        let broken = [Code::FUNCTION_EXIT, Code::PROTOCOL, Code::WORKER_LOST].contains(&code);
        let patience = if broken { END_REPORT_TIMEOUT } else { END_KNOWN_TIMEOUT };
        if code == Code::WORKER_LOST
            && let Some((outcome, output)) = started.worker.ended(patience).await
        {
            return worker_ended(outcome.end, output);
        }
        for Beside { name, lease, .. } in &started.udfs {
            if let Some(ended) = lease.ended(name, patience).await {
                let report = ended.report();
                // Not by what it did: the task may be run again.
                let is_lost = report.known_code() == Code::SPAWNER_LOST;
                return if is_lost {
                    RequestFailure::lost(report)
                } else {
                    RequestFailure::of(report)
                };
            }
        }
        failure
    }

    /// Returns the real reason why the driver failed: the end of an instance that the driver called
    /// itself explains more than the connection that broke because of it.
    pub async fn explain_driver(&self, report: ErrorReport) -> ErrorReport {
        let broken = [Code::FUNCTION_EXIT, Code::PROTOCOL].contains(&report.known_code());
        let held =
            std::mem::take(&mut *self.for_driver.lock().unwrap_or_else(PoisonError::into_inner));
        for Beside { name, lease, .. } in held.iter().filter(|_| broken) {
            if let Some(ended) = lease.ended(name, END_REPORT_TIMEOUT).await {
                return ended.report();
            }
        }
        report
    }
}

impl StartedTask {
    /// Takes the file of the task's output, which counts once the task has ended well.
    pub(crate) fn take_output(&mut self) -> Option<File> {
        self.output.take()
    }
}

impl Beside {
    /// Returns the processor time of the instance since it was leased, in microseconds.
    fn cpu_us(&self) -> u64 {
        let used = self.lease.cpu_time().zip(self.cpu);
        used.map_or(0, |(now, before)| micros(now.saturating_sub(before)))
    }
}

/// A task that runs, with the sandboxes that it holds. Dropping it destroys them.
#[derive(Debug)]
pub(crate) struct StartedTask {
    task: u32,
    worker: WorkerLease,
    udfs: Vec<Beside>,
    // The file that it writes for other tasks.
    output: Option<File>,
    began: Instant,
    // Returned last: what ran in it is destroyed then.
    _kept: Option<RoomPermit>,
    // Ends when the task does.
    _span: Span,
}

impl QueryRunner {
    /// Notes which functions the tasks that are requested next will call, so that the first task
    /// can request the instances of all of them together.
    pub fn expect(&self, udfs: &[String]) {
        for name in udfs {
            // None was requested yet.
            if let Some(bound) = self.udfs.get(name) {
                bound.expect();
            }
        }
    }

    /// Waits for the room of a task.
    pub(crate) async fn reserve(&self, ask: &TaskAsk) -> Result<TaskRoom, RequestFailure> {
        // A task that found no room is not lost: it would find none again. A second attempt of a
        // task is: the first one goes on.
        let failed = if ask.twin { RequestFailure::lost } else { RequestFailure::of };
        self.task_room(ask).await.map_err(|error| failed(error.report()))
    }

    /// Starts one attempt of one task in its room: leases a worker and instances of its functions,
    /// and hands the plan and the grants over to the worker. To the grants it adds these instances
    /// and an output. The driver follows the worker over the connection that is returned.
    pub(crate) async fn start(
        &self,
        ask: TaskAsk,
        TaskRoom { worker, udfs, kept }: TaskRoom,
        plan: Bytes,
        granted_before: Grants,
    ) -> Result<(StartedTask, UnixStream), RequestFailure> {
        let spec = self.spec(&ask);
        let span = tracing::debug_span!(target: SPANS, "query.task", snowmelt.task = ask.task);
        let (worker, udfs) = tokio::join!(
            self.worker(&spec, worker),
            try_join_all(ask.udfs.iter().zip(udfs).map(|(name, place)| self.udf(name, place)))
        );
        let worker = worker?;
        let udfs = udfs.map_err(|error| not_started(&error))?;
        let (beside, connections): (Vec<_>, Vec<_>) = udfs.into_iter().unzip();
        let output = ask.output.then(|| self.host.output_file()).transpose();
        let output = output.map_err(|error| no_output(&error))?;
        let writable = output.as_ref().map(File::try_clone).transpose();
        let writable = writable.map_err(|error| no_output(&error))?.map(OwnedFd::from);
        let udf_grants = granted(&ask.udfs, connections);
        // Only the worker keeps it: it is gone with the task.
        let scratch = ask.scratch.then(|| self.host.scratch_file()).transpose();
        let scratch = scratch.map_err(|error| no_output(&error))?.map(OwnedFd::from);
        let grants = Grants { udfs: udf_grants, output: writable, scratch, ..granted_before };
        let header = self.header(&ask);
        let began = Instant::now();
        let task = ask.task;
        let udfs = beside;
        let started = StartedTask { task, worker, udfs, output, began, _kept: kept, _span: span };
        let handed = async {
            let socket = started.worker.connect()?;
            hand_over(socket, grants, plan, &header).await
        };
        match handed.await {
            Ok(socket) => Ok((started, socket)),
            Err(error) => {
                Err(self.explain(RequestFailure::of_worker(started.task, error), &started).await)
            }
        }
    }

    fn header(&self, ask: &TaskAsk) -> Task {
        let memory = self.limits.memory.bytes() / 100 * RESERVABLE_PERCENT;
        ask.header(&self.query, memory, self.limits.threads())
    }

    /// Ends an attempt: gives its sandboxes back if it has a result, and otherwise returns why it
    /// failed.
    pub(crate) async fn ended(
        &self,
        started: StartedTask,
        failure: Option<RequestFailure>,
    ) -> Result<(SandboxUse, Vec<SandboxUse>), RequestFailure> {
        for udf in &started.udfs {
            self.keep_written(&udf.name, &udf.lease);
        }
        if let Some(failure) = failure {
            return Err(self.explain(failure, &started).await);
        }
        let done_us = self.since_accepted(Instant::now());
        let began_us = self.since_accepted(started.began);
        let StartedTask { task, worker, udfs, _kept, .. } = started;
        let used = |name: String, cold, asked, ready, peak: Option<ByteSize>| SandboxUse {
            name,
            host: None,
            cold,
            asked_us: self.since_accepted(asked),
            ready_us: self.since_accepted(ready),
            began_us,
            done_us,
            peak_memory: peak.map(ByteSize::bytes),
            ..SandboxUse::default()
        };
        let name = format!("worker {task}");
        let peak = worker.memory_peak();
        let mut worker_use = used(name, worker.cold, worker.asked, worker.ready, peak);
        worker_use.memory_limit = self.limits.memory.bytes();
        worker.give_back();
        let instance_use = |udf: Beside| {
            let cpu_us = udf.cpu_us();
            let Beside { name, lease, loaded, .. } = udf;
            let limit = self.udfs.get(&name).map_or(0, |bound| bound.udf.limits.memory.bytes());
            let name = format!("{name} {task}");
            let found = used(name, lease.cold, lease.asked, loaded, lease.memory_peak());
            // The time is what the instance claims.
            let setup_us = lease.setup_us().min(found.ready_us.saturating_sub(found.asked_us));
            lease.give_back();
            SandboxUse { cpu_us, memory_limit: limit, setup_us, ..found }
        };
        Ok((worker_use, udfs.into_iter().map(instance_use).collect()))
    }

    /// Connects the driver itself with an instance of a function, which is held until the query
    /// ends.
    pub async fn connect(&self, udf: &str) -> Result<UdfConnection, ErrorReport> {
        let connecting = async {
            let rooms = self.own_room(udf).await?;
            self.udf(udf, SandboxOrigin::New(rooms)).await
        };
        let (beside, connection) = connecting.await.map_err(|error: Error| error.report())?;
        self.for_driver.lock().unwrap_or_else(PoisonError::into_inner).push(beside);
        Ok(connection)
    }
}

fn granted(names: &[String], connections: Vec<UdfConnection>) -> Vec<(UdfGrant, OwnedFd)> {
    let grant = |(name, connection): (&String, UdfConnection)| {
        let timeout_ms = u64::try_from(connection.timeout.as_millis()).unwrap_or(u64::MAX);
        (UdfGrant { name: name.clone(), timeout_ms }, OwnedFd::from(connection.socket))
    };
    names.iter().zip(connections).map(grant).collect()
}
