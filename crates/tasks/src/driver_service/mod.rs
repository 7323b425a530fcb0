//! The platform's side of a query's driver: starts it in a sandbox, answers its requests, forwards
//! its answer.
//!
//! The driver is a worker like any other, taken from the same pool. It may list and open the files
//! of the query's own locations, start workers and call the query's own functions, each as often as
//! the query needs it, and nothing else. Each request is checked here, because the driver has read
//! untrusted input.
//!
//! | member | job |
//! |---|---|
//! | `permissions` | the requests that one driver may make |
//! | `outputs` | the outputs of tasks, and how other tasks read them |
//! | `hosts` | the hosts of a cluster as one query sees them |
//! | `execution` | the attempts of tasks, from the request to the end |
//! | `requests` | answers the requests of one driver |
//! | `statement` | parses a statement that may define a function |
//! | `cleanup` | removes objects that a driver could not remove |
//!
//! Boundary: no byte of SQL, of a file or of a result is decoded here. Invariant: everything that
//! a query leased is held by [`Driver::serve`], so dropping that future ends all of it.

mod cleanup;
mod execution;
mod hosts;
mod outputs;
mod permissions;
mod requests;
mod statement;

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use snowmelt_node::{Error, Result, WorkerLease, WorkerSpec};
use snowmelt_types::{ByteSize, Code, CpuMillis, End, ErrorReport, micros};
use snowmelt_wire::{Drive, Error as WireError, Frame, FrameStream, Kind};
use tokio::net::UnixStream;

pub use cleanup::clean;
use permissions::{Allowance, DriverScope, Locations};
use requests::Desk;
pub use statement::definition;

use crate::host::FooterScope;
use crate::runner::{END_REPORT_TIMEOUT, QueryRunner, RESERVABLE_PERCENT, SPAWNER_REPLACED};

/// The least memory of a driver, which merges the results of all workers.
const LEAST_MEMORY: ByteSize = ByteSize::mib(1536);

/// Receives the progress of a driver. Must not block.
pub trait DriverReporter: Send + Sync {
    /// Reports that the query is planned.
    fn planned(&self);
    /// Reports the progress of the tasks.
    fn progress(&self, progress: snowmelt_wire::RunProgress);
    /// Reports that all tasks are done and their results are merged.
    fn merging(&self);
    /// Reports a text that the user should know.
    fn note(&self, text: &str);
}

/// The sandbox that plans and merges one query.
#[derive(Debug)]
pub struct Driver {
    lease: WorkerLease,
    control: UnixStream,
    scope: DriverScope,
}

/// The answer of a driver: frames of a schema, batches and a profile, then an end or a failure.
pub type Frames = UnixStream;

impl Driver {
    /// Waits for room, acquires a driver for a query and sends it the query. Relative locations are
    /// read against `folder`. The profile counts from the time when the query was accepted.
    pub async fn begin(
        runner: &QueryRunner,
        mut drive: Drive,
        accepted: Instant,
        worker_memory: ByteSize,
        folder: PathBuf,
    ) -> Result<(Self, Frames)> {
        let memory = worker_memory.max(LEAST_MEMORY);
        drive.http_sources = runner.host.http_sources();
        let locations = Locations::of(&drive);
        let network = locations.need_network();
        let allowance = Mutex::new(Allowance::of(&drive, &locations));
        let footers = FooterScope::new(&runner.tenant, &drive.aws);
        let spec = WorkerSpec { memory, cpu: CpuMillis(1000 * drive.threads.max(1)), network };
        let lease = runner.admit(&spec).await?;
        drive.memory_bytes = memory.bytes() / 100 * RESERVABLE_PERCENT;
        (drive.worker_memory, drive.driver_memory) = (worker_memory.bytes(), memory.bytes());
        let (near, far) = StdStream::pair()?;
        let spool = tempfile::tempfile()?;
        // The driver's own start is part of the query's time.
        drive.elapsed_us = micros(accepted.elapsed());
        let handed = tell(&lease, drive, far, spool).await;
        let reading = Mutex::default();
        let secrets = runner.host.secrets_folder().cloned();
        let files = Arc::clone(&runner.files);
        let scope =
            DriverScope { folder, files, locations, network, allowance, footers, secrets, reading };
        match handed {
            Ok(control) => Ok((Self { lease, control, scope }, nonblocking(near)?)),
            Err(WireError::Closed | WireError::Io(_)) => {
                Err(Error::Report(Box::new(lost(&lease, None).await)))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Answers the driver's requests until it ends the connection.
    pub async fn serve(&mut self, runner: &QueryRunner, reporter: &dyn DriverReporter) {
        let desk = Desk::new(runner, &self.scope, reporter);
        if let Err(error) = desk.serve(&mut self.control).await {
            tracing::warn!(%error, "a driver broke the protocol");
        }
    }

    /// Returns the sandbox for another query. Call it when the driver's answer was complete.
    pub fn give_back(self) {
        self.lease.give_back();
    }

    /// Returns why the driver ended without an answer.
    pub async fn lost(&self) -> ErrorReport {
        let reading = self.scope.reading().clone();
        lost(&self.lease, reading.map(|file| format!("it was reading `{file}`"))).await
    }
}

/// Returns why the connection to a driver has ended; `more` is shown after what the driver wrote
/// last.
async fn lost(lease: &WorkerLease, more: Option<String>) -> ErrorReport {
    match lease.ended(END_REPORT_TIMEOUT).await {
        Some((outcome, output)) => ended_with(&outcome.end, output.into_iter().chain(more)),
        None => ErrorReport::new(Code::DRIVER_LOST, "the driver of the query was lost")
            .hint("run the query again"),
    }
}

/// Returns why a driver has ended; the `excerpt` is what it wrote last.
fn ended_with(end: &End, excerpt: impl IntoIterator<Item = String>) -> ErrorReport {
    let report =
        |code| ErrorReport::new(code, format!("the driver of the query {end}")).excerpt(excerpt);
    match end {
        End::OutOfMemory { limit, .. } => {
            let twice = limit.bytes() * 2;
            report(Code::WORKER_MEMORY).hint(format!(
                "it plans the query and merges the results: give it more (--memory {}MiB), or \
                 simplify the SQL",
                twice >> 20
            ))
        }
        End::SpawnerLost => report(Code::SPAWNER_LOST).hint(SPAWNER_REPLACED),
        _ => report(Code::DRIVER_LOST)
            .hint("the SQL or a file is more than it can read: simplify the one, check the other"),
    }
}

/// Sends a driver its query, over a connection that it answers on.
async fn tell(
    lease: &WorkerLease,
    drive: Drive,
    answer: StdStream,
    spool: File,
) -> snowmelt_wire::Result<UnixStream> {
    let socket = lease.connect()?;
    let handing = move || hand_over(socket, &drive, &answer, &spool);
    let socket = tokio::task::spawn_blocking(handing).await.map_err(std::io::Error::other)??;
    Ok(nonblocking(socket)?)
}

fn hand_over(
    socket: StdStream,
    drive: &Drive,
    answer: &StdStream,
    spool: &File,
) -> snowmelt_wire::Result<StdStream> {
    let mut stream = FrameStream::new(socket);
    let frame = Frame::json(Kind::Drive, drive)?;
    stream.send_with(frame.kind, &frame.payload, &[answer.as_fd(), spool.as_fd()])?;
    Ok(stream.into_inner())
}

fn nonblocking(socket: StdStream) -> std::io::Result<UnixStream> {
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}
