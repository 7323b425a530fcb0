//! Answers the requests of one driver.
//!
//! Invariant: a driver gets the files of locations that the query names, the query's functions,
//! workers and their outputs, and nothing else, whatever it requests.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use futures::{FutureExt, stream};
use snowmelt_types::{Code, ErrorReport, Report};
use snowmelt_wire::{
    Answered, Ask, Error as WireError, Failed, FileGrant, Frame, Kind, MAX_DESCRIPTORS,
    MAX_REQUEST_BYTES, Reply, Request, TaskAsk, read_frame_within, write_frame_with,
};
use tokio::net::UnixStream;

use super::DriverReporter;
use super::allowance::Allowance;
use super::locations::Locations;
use crate::runner::{QueryRunner, Started};

/// The most bytes of plans of one query.
const PLAN_BYTES: usize = 256 << 20;

/// The most requests of one driver that are answered at a time, beside those for tasks that wait for
/// room: these need the requests that end other tasks.
const MOST_REQUESTS: usize = 4096;

/// A result of a request, with its descriptors.
type Answer = std::result::Result<(Answered, Vec<OwnedFd>), Failed>;

/// What one driver may request.
#[derive(Debug)]
pub(super) struct Scope {
    /// Relative locations are read against it.
    pub(super) folder: PathBuf,
    pub(super) locations: Locations,
    /// True if the query names a bucket.
    pub(super) network: bool,
    pub(super) allowance: Mutex<Allowance>,
    /// The file that was opened for the driver last; `None` once the query is planned.
    pub(super) reading: Mutex<Option<String>>,
}

/// Where the requests of one driver are answered.
pub(super) struct Desk<'q> {
    runner: &'q QueryRunner,
    scope: &'q Scope,
    started: Mutex<HashMap<u64, Started>>,
    // The outputs of tasks that have ended well, by task.
    outputs: Mutex<HashMap<u32, File>>,
    next: AtomicU64,
}

impl<'q> Desk<'q> {
    pub(super) fn new(runner: &'q QueryRunner, scope: &'q Scope) -> Self {
        let (started, outputs) = (Mutex::default(), Mutex::default());
        Self { runner, scope, started, outputs, next: AtomicU64::new(1) }
    }

    /// Answers requests until the driver ends the connection or breaks the protocol.
    pub(super) async fn serve(
        &self,
        control: &mut UnixStream,
        reporter: &dyn DriverReporter,
    ) -> snowmelt_wire::Result<()> {
        let served = self.answer(control, reporter).await;
        // A driver that waits for a reply, or writes to the closed connection, gets an error.
        let _ = rustix::net::shutdown(&*control, rustix::net::Shutdown::Both);
        served
    }

    async fn answer(
        &self,
        control: &mut UnixStream,
        reporter: &dyn DriverReporter,
    ) -> snowmelt_wire::Result<()> {
        let (reading, mut writing) = control.split();
        let requests = stream::try_unfold(reading, |mut reading| async move {
            let frame = read_frame_within(&mut reading, MAX_REQUEST_BYTES).await?;
            Ok::<_, WireError>(frame.map(|frame| (frame, reading)))
        });
        let mut requests = std::pin::pin!(requests);
        let mut plans = Plans::default();
        let mut replies: FuturesUnordered<BoxFuture<'_, (u64, Answer)>> = FuturesUnordered::new();
        loop {
            tokio::select! {
                frame = requests.next(), if replies.len() < MOST_REQUESTS + self.runner.waiting() => {
                    let Some(frame) = frame.transpose()? else { return Ok(()) };
                    if frame.kind == Kind::Plan {
                        if !self.allowance().plan() {
                            return Err(WireError::Unexpected { found: Kind::Plan, expected: "Request" });
                        }
                        plans.add(frame.payload)?;
                        continue;
                    }
                    let Request { id, ask } = frame.expect(Kind::Request, "Request")?.parse()?;
                    if let Some(asked) = self.take(ask, &plans, reporter) {
                        replies.push(asked.map(move |answer| (id, answer)).boxed());
                    }
                }
                Some((id, answer)) = replies.next(), if !replies.is_empty() => {
                    reply(&mut writing, id, answer).await?;
                }
            }
        }
    }

    /// Begins a request; gives a future for one that needs a reply.
    fn take<'a>(
        &'a self,
        ask: Ask,
        plans: &Plans,
        reporter: &dyn DriverReporter,
    ) -> Option<BoxFuture<'a, Answer>> {
        match ask {
            Ask::List { location } => Some(self.list(location).boxed()),
            Ask::Open { paths } => Some(async move { self.open(&paths) }.boxed()),
            Ask::Run(ask) => {
                let plan = plans.get(ask.plan);
                Some(async move { self.run(ask, plan?).await }.boxed())
            }
            Ask::Ended { started, failure } => Some(self.ended(started, failure).boxed()),
            Ask::Connect { udf } => Some(async move { self.connect(&udf).await }.boxed()),
            Ask::Expect { udfs } => {
                let udfs = self.allowance().expect(udfs);
                self.runner.expect(&udfs);
                None
            }
            Ask::Release { tasks } => {
                let mut outputs = self.outputs();
                tasks.iter().for_each(|task| _ = outputs.remove(task));
                None
            }
            event => {
                if matches!(event, Ask::Planned) {
                    *self.scope.reading.lock().unwrap_or_else(PoisonError::into_inner) = None;
                }
                report(event, reporter);
                None
            }
        }
    }

    fn allowance(&self) -> MutexGuard<'_, Allowance> {
        self.scope.allowance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outputs(&self) -> MutexGuard<'_, HashMap<u32, File>> {
        self.outputs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn list(&self, location: String) -> Answer {
        if !self.scope.locations.name(&location) {
            return Err(refused("it asked for a location that the query does not name"));
        }
        self.allowance().list().map_err(refused)?;
        let folder = self.scope.folder.clone();
        let listing = tokio::task::spawn_blocking(move || snowmelt_files::find(&location, &folder));
        let files = match listing.await {
            Ok(listed) => listed.map_err(|error| Failed::of(error.report()))?,
            Err(_) => return Err(refused("a folder could not be listed")),
        };
        self.allowance().listed(files.iter().map(|file| file.path.as_str()));
        Ok((Answered::Listed { files }, Vec::new()))
    }

    fn open(&self, paths: &[String]) -> Answer {
        if paths.len() > MAX_DESCRIPTORS {
            return Err(refused("it asked for too many files at once"));
        }
        self.allowance().open(paths.len()).map_err(refused)?;
        let open = |path: &String| self.open_listed(path).map(OwnedFd::from);
        let files = paths.iter().map(open).collect::<std::result::Result<Vec<_>, _>>()?;
        *self.scope.reading.lock().unwrap_or_else(PoisonError::into_inner) = paths.last().cloned();
        Ok((Answered::Opened, files))
    }

    /// Opens a file with the platform's own rights: a driver or worker is granted descriptors,
    /// never paths, so it reads files that its own user could not, and nothing else.
    fn open_listed(&self, path: &str) -> std::result::Result<File, Failed> {
        if !self.allowance().is_listed(path) {
            return Err(refused("it asked for a file that the query does not name"));
        }
        File::open(path).map_err(|error| {
            let message = format!("cannot open {path}: {error}");
            let hint = "it was there when the query was planned: run the query again";
            Failed::of(ErrorReport::new(Code::STORAGE, message).hint(hint))
        })
    }

    async fn run(&self, ask: TaskAsk, plan: Bytes) -> Answer {
        if !ask.s3.is_empty() && !self.scope.network {
            return Err(refused("it asked for a bucket that the query does not name"));
        }
        self.allowance().run(&ask).map_err(refused)?;
        // Before its files are opened: a task that waits holds no descriptors.
        let room = self.runner.reserve(&ask).await?;
        let grant = |grant: &FileGrant| {
            let file = self.open_listed(&grant.path)?;
            Ok::<_, Failed>((grant.clone(), OwnedFd::from(file)))
        };
        let files = ask.files.iter().map(grant).collect::<std::result::Result<Vec<_>, _>>()?;
        let inputs = self.inputs(&ask)?;
        let (task, socket) = self.runner.start(ask, room, plan, files, inputs).await?;
        let started = self.next.fetch_add(1, Ordering::Relaxed);
        self.started.lock().unwrap_or_else(PoisonError::into_inner).insert(started, task);
        Ok((Answered::Started { started }, vec![socket.into()]))
    }

    /// The outputs that a task reads, opened for reading only: what has counted does not change.
    fn inputs(&self, ask: &TaskAsk) -> std::result::Result<Vec<(u32, OwnedFd)>, Failed> {
        let outputs = self.outputs();
        let input = |task: u32| {
            let output = outputs.get(&task);
            let output = output.ok_or_else(|| refused("it read an output that does not exist"))?;
            let path = format!("/proc/self/fd/{}", output.as_raw_fd());
            let file = File::open(path).map_err(|error| {
                let message = format!("the output of task {task} cannot be opened: {error}");
                Failed::of(ErrorReport::new(Code::STORAGE, message))
            })?;
            Ok((task, OwnedFd::from(file)))
        };
        // Objects are read with the query's own keys.
        let in_files = ask.reads.iter().filter(|read| read.objects.is_none());
        let tasks: BTreeSet<u32> = in_files.map(|read| read.task).collect();
        tasks.into_iter().map(input).collect()
    }

    async fn ended(&self, started: u64, failure: Option<Failed>) -> Answer {
        let task = self.started.lock().unwrap_or_else(PoisonError::into_inner).remove(&started);
        let mut task = task.ok_or_else(|| refused("it ended a task that does not run"))?;
        let output = task.take_output();
        let number = task.number();
        let (worker, udfs) = self.runner.ended(task, failure).await?;
        if let Some(output) = output {
            let mut outputs = self.outputs();
            // The first complete attempt counts.
            outputs.entry(number).or_insert(output);
        }
        Ok((Answered::Ended { worker, udfs }, Vec::new()))
    }

    async fn connect(&self, udf: &str) -> Answer {
        self.allowance().connect(udf).map_err(refused)?;
        let connection = self.runner.connect(udf).await.map_err(Failed::of)?;
        let timeout_ms = u64::try_from(connection.timeout.as_millis()).unwrap_or(u64::MAX);
        Ok((Answered::Connected { timeout_ms }, vec![connection.socket.into()]))
    }
}

/// The plans that a driver sent, by number.
#[derive(Default)]
struct Plans {
    plans: Vec<Bytes>,
    bytes: usize,
}

impl Plans {
    fn add(&mut self, plan: Bytes) -> snowmelt_wire::Result<()> {
        self.bytes += plan.len();
        if self.bytes > PLAN_BYTES {
            return Err(WireError::TooLong(self.bytes as u64));
        }
        self.plans.push(plan);
        Ok(())
    }

    fn get(&self, number: u32) -> std::result::Result<Bytes, Failed> {
        let plan = self.plans.get(number as usize).cloned();
        plan.ok_or_else(|| refused("it named a plan that it did not send"))
    }
}

async fn reply(
    writing: &mut tokio::net::unix::WriteHalf<'_>,
    id: u64,
    answer: Answer,
) -> snowmelt_wire::Result<()> {
    let (answered, descriptors) =
        answer.unwrap_or_else(|failed| (Answered::Failed(failed), Vec::new()));
    let frame = Frame::json(Kind::Reply, &Reply { id, answered })?;
    let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    write_frame_with(writing, &frame, &descriptors).await
}

fn report(event: Ask, reporter: &dyn DriverReporter) {
    match event {
        Ask::Planned => reporter.planned(),
        Ask::Progress(progress) => reporter.progress(progress),
        Ask::Merging => reporter.merging(),
        Ask::Note { text } => reporter.note(&text),
        _ => (),
    }
}

/// The error for a request that a correct driver never makes.
fn refused(why: &str) -> Failed {
    Failed::of(ErrorReport::new(
        Code::PROTOCOL,
        format!("the driver of the query was refused: {why}"),
    ))
}
