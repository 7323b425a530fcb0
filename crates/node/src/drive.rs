//! The platform's side of a query's driver: starts it in a sandbox, answers its requests, passes
//! its answer on.
//!
//! The driver is a worker like any other, taken from the same pool. It may list and open the files
//! of the query's own locations, start workers and call the query's own functions, and nothing
//! else: whatever it asks for is checked here, because it has read what others made.
//!
//! Boundary: no byte of SQL, of a file or of a result is decoded here. Invariant: everything that
//! a query leased is held by [`Driver::serve`], so dropping that future ends all of it.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use futures::{FutureExt, stream};
use snowmelt_types::{ByteSize, Code, CpuMillis, End, ErrorReport, Report};
use snowmelt_wire::{
    Answered, Ask, Drive, Error as WireError, Failed, FileGrant, Frame, FrameStream, Kind,
    MAX_DESCRIPTORS, Reply, Request, TaskAsk, read_frame_within, write_frame_with,
};
use tokio::net::UnixStream;

use crate::runner::{QueryRunner, RESERVABLE_PERCENT, Started};
use crate::{Node, Result, WorkerLease, WorkerSpec};

/// The least memory of a driver. It merges what all workers found.
const LEAST_MEMORY: ByteSize = ByteSize::mib(1536);

/// The longest request or plan of a driver. A task names its files: 100,000 of them fit.
const REQUEST_BYTES: u32 = 64 << 20;

/// The most bytes of plans of one query.
const PLAN_BYTES: usize = 256 << 20;

/// The most requests of one driver that are answered at a time: above the most tasks of a query.
const MOST_REQUESTS: usize = 4096;

/// How long to wait for the news that a driver ended, once its connection failed.
const NEWS_TAKE_AT_MOST: Duration = Duration::from_millis(500);

/// What a driver tells while it runs. Must not block.
pub trait DriverReporter: Send + Sync {
    /// The query is planned.
    fn planned(&self);
    /// The tasks are this far.
    fn progress(&self, progress: snowmelt_wire::RunProgress);
    /// All tasks are done.
    fn merging(&self);
    /// Something that the user should know.
    fn note(&self, text: &str);
}

/// The sandbox that plans and merges one query.
#[derive(Debug)]
pub struct Driver {
    lease: WorkerLease,
    control: UnixStream,
    folder: PathBuf,
    network: bool,
    // The file whose footer was asked for last; `None` once the query is planned.
    reading: Mutex<Option<String>>,
}

/// The answer of a driver: frames of a schema, batches and a profile, then an end or a failure.
pub type Frames = UnixStream;

impl Driver {
    /// Takes a driver for a query and hands the query over. Relative locations are read against
    /// `folder`.
    pub async fn begin(
        node: &Node,
        mut drive: Drive,
        worker_memory: ByteSize,
        folder: PathBuf,
    ) -> Result<(Self, Frames)> {
        let memory = worker_memory.max(LEAST_MEMORY);
        let network = reads_buckets(&drive);
        let spec = WorkerSpec { memory, cpu: CpuMillis(1000 * drive.threads.max(1)), network };
        let lease = node.lease_worker(&spec).await?;
        drive.memory_bytes = memory.bytes() / 100 * RESERVABLE_PERCENT;
        let socket = lease.connect()?;
        let (near, far) = StdStream::pair()?;
        let spool = tempfile::tempfile()?;
        let socket = tokio::task::spawn_blocking(move || hand_over(socket, &drive, &far, &spool));
        let socket = socket.await.map_err(std::io::Error::other)??;
        let control = nonblocking(socket)?;
        let reading = Mutex::default();
        Ok((Self { lease, control, folder, network, reading }, nonblocking(near)?))
    }

    /// Answers the driver's requests until it ends the connection.
    pub async fn serve(&mut self, runner: &QueryRunner, reporter: &dyn DriverReporter) {
        let desk = Desk {
            runner,
            folder: &self.folder,
            network: self.network,
            reading: &self.reading,
            listed: Mutex::default(),
            started: Mutex::default(),
            next: AtomicU64::new(1),
        };
        if let Err(error) = desk.serve(&mut self.control, reporter).await {
            tracing::warn!(%error, "a driver broke the protocol");
        }
    }

    /// Gives the sandbox back for another query: its answer was complete.
    pub fn give_back(self) {
        self.lease.give_back();
    }

    /// Why the driver ended without an answer.
    pub async fn lost(&self) -> ErrorReport {
        let ended = self.lease.ended(NEWS_TAKE_AT_MOST).await;
        let Some((outcome, output)) = ended else {
            return ErrorReport::new(Code::DRIVER_LOST, "the driver of the query was lost")
                .hint("run the query again");
        };
        let reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let file = reading.map(|file| format!("it was reading the footer of `{file}`"));
        let report = |code| {
            let message = format!("the driver of the query {}", outcome.end);
            ErrorReport::new(code, message).excerpt(output.into_iter().chain(file))
        };
        match outcome.end {
            End::OutOfMemory { limit, .. } => {
                let twice = limit.bytes() * 2;
                report(Code::WORKER_MEMORY).hint(format!(
                    "it plans the query and merges the results: give it more (--memory {}MiB), or \
                     simplify the SQL",
                    twice >> 20
                ))
            }
            End::SpawnerLost => {
                report(Code::SPAWNER_LOST).hint("run the query again: another spawner is started")
            }
            _ => report(Code::DRIVER_LOST).hint(
                "the SQL or a file is more than it can read: simplify the one, check the other",
            ),
        }
    }
}

/// A driver has a network only where the query can name a bucket.
fn reads_buckets(drive: &Drive) -> bool {
    let names = |text: &str| text.contains("s3://") || text.contains("s3a://");
    names(&drive.sql) || drive.tables.values().any(|location| names(location))
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

/// A result of a request, with what goes along.
type Answer = std::result::Result<(Answered, Vec<OwnedFd>), Failed>;

/// Where the requests of one driver are answered.
struct Desk<'q> {
    runner: &'q QueryRunner,
    folder: &'q PathBuf,
    network: bool,
    reading: &'q Mutex<Option<String>>,
    // Every file that the query's locations hold: no other is opened.
    listed: Mutex<BTreeMap<String, u64>>,
    started: Mutex<HashMap<u64, Started>>,
    next: AtomicU64,
}

impl Desk<'_> {
    async fn serve(
        &self,
        control: &mut UnixStream,
        reporter: &dyn DriverReporter,
    ) -> snowmelt_wire::Result<()> {
        let (reading, mut writing) = control.split();
        let requests = stream::try_unfold(reading, |mut reading| async move {
            let frame = read_frame_within(&mut reading, REQUEST_BYTES).await?;
            Ok::<_, WireError>(frame.map(|frame| (frame, reading)))
        });
        let mut requests = std::pin::pin!(requests);
        let mut plans = Plans::default();
        let mut replies: FuturesUnordered<BoxFuture<'_, (u64, Answer)>> = FuturesUnordered::new();
        loop {
            tokio::select! {
                frame = requests.next(), if replies.len() < MOST_REQUESTS => {
                    let Some(frame) = frame.transpose()? else { return Ok(()) };
                    if frame.kind == Kind::Plan {
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

    /// Takes a request: what needs a reply is still to be waited for.
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
                self.runner.expect(&udfs);
                None
            }
            told => {
                if matches!(told, Ask::Planned) {
                    *self.reading.lock().unwrap_or_else(PoisonError::into_inner) = None;
                }
                tell(told, reporter);
                None
            }
        }
    }

    async fn list(&self, location: String) -> Answer {
        let folder = self.folder.clone();
        let listing =
            tokio::task::spawn_blocking(move || snowmelt_query::local_files(&location, &folder));
        let files = match listing.await {
            Ok(listed) => listed.map_err(|error| Failed::of(error.report()))?,
            Err(_) => return Err(refused("a folder could not be listed")),
        };
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        listed.extend(files.iter().map(|file| (file.path.clone(), file.bytes)));
        Ok((Answered::Listed { files }, Vec::new()))
    }

    fn open(&self, paths: &[String]) -> Answer {
        if paths.len() > MAX_DESCRIPTORS {
            return Err(refused("it asked for too many files at once"));
        }
        let open = |path: &String| self.open_listed(path).map(OwnedFd::from);
        let files = paths.iter().map(open).collect::<std::result::Result<Vec<_>, _>>()?;
        *self.reading.lock().unwrap_or_else(PoisonError::into_inner) = paths.last().cloned();
        Ok((Answered::Opened, files))
    }

    /// Opens a file with the platform's own rights: a driver or worker is granted descriptors,
    /// never paths, so it reads files that its own user could not, and nothing else.
    fn open_listed(&self, path: &str) -> std::result::Result<File, Failed> {
        let listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        if !listed.contains_key(path) {
            return Err(refused("it asked for a file that the query does not name"));
        }
        drop(listed);
        File::open(path).map_err(|error| {
            let message = format!("cannot open {path}: {error}");
            let hint = "it was there when the query was planned: run the query again";
            Failed::of(ErrorReport::new(Code::STORAGE, message).hint(hint))
        })
    }

    async fn run(&self, ask: TaskAsk, plan: Bytes) -> Answer {
        if !ask.s3.is_empty() && !self.network {
            return Err(refused("it asked for a bucket that the query does not name"));
        }
        let grant = |grant: &FileGrant| {
            let file = self.open_listed(&grant.path)?;
            Ok::<_, Failed>((grant.clone(), OwnedFd::from(file)))
        };
        let files = ask.files.iter().map(grant).collect::<std::result::Result<Vec<_>, _>>()?;
        let (task, socket) = self.runner.start(ask, plan, files).await?;
        let started = self.next.fetch_add(1, Ordering::Relaxed);
        self.started.lock().unwrap_or_else(PoisonError::into_inner).insert(started, task);
        Ok((Answered::Started { started }, vec![socket.into()]))
    }

    async fn ended(&self, started: u64, failure: Option<Failed>) -> Answer {
        let task = self.started.lock().unwrap_or_else(PoisonError::into_inner).remove(&started);
        let task = task.ok_or_else(|| refused("it ended a task that does not run"))?;
        let (worker, udfs) = self.runner.ended(task, failure).await?;
        Ok((Answered::Ended { worker, udfs }, Vec::new()))
    }

    async fn connect(&self, udf: &str) -> Answer {
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

fn tell(told: Ask, reporter: &dyn DriverReporter) {
    match told {
        Ask::Planned => reporter.planned(),
        Ask::Progress(progress) => reporter.progress(progress),
        Ask::Merging => reporter.merging(),
        Ask::Note { text } => reporter.note(&text),
        _ => (),
    }
}

/// A request that only a driver makes that does not do what it should.
fn refused(why: &str) -> Failed {
    Failed::of(ErrorReport::new(
        Code::PROTOCOL,
        format!("the driver of the query was refused: {why}"),
    ))
}
