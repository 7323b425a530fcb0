//! Answers the requests of one driver.
//!
//! Invariant: a driver gets the files of locations that the query names, the query's functions,
//! workers and their outputs, and nothing else, whatever it requests.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, FuturesUnordered, StreamExt};
use snowmelt_wire::{
    Answered, DriverOperation, DriverRequest, Error as WireError, Frame, GangAsk, KeptFooter, Kind,
    MAX_DESCRIPTORS, MAX_REQUEST_BYTES, Reply, RequestFailure, TaskAsk, read_frame_within,
    write_frame_with,
};
use tokio::net::UnixStream;
use tokio::task::spawn_blocking;

use super::DriverReporter;
use super::execution::Attempts;
use super::permissions::{DriverScope, refused};
use crate::runner::QueryRunner;

/// The most bytes of plans of one query.
const PLAN_BYTES: usize = 256 << 20;

/// The most requests of one driver that are answered at a time, beside requests for tasks that wait
/// for room: those wait for requests that end other tasks.
const MAX_REQUESTS: usize = 4096;

/// The result of a request, with its descriptors.
type DeskAnswer = std::result::Result<(Answered, Vec<OwnedFd>), RequestFailure>;

/// The desk at which the requests of one driver are answered.
pub(super) struct Desk<'q> {
    runner: &'q QueryRunner,
    scope: &'q DriverScope,
    attempts: Attempts<'q>,
    reporter: &'q dyn DriverReporter,
}

impl<'q> Desk<'q> {
    pub(super) fn new(
        runner: &'q QueryRunner,
        scope: &'q DriverScope,
        reporter: &'q dyn DriverReporter,
    ) -> Self {
        Self { runner, scope, attempts: Attempts::new(runner, scope, reporter), reporter }
    }

    /// Answers requests until the driver ends the connection or breaks the protocol.
    pub(super) async fn serve(&self, control: &mut UnixStream) -> snowmelt_wire::Result<()> {
        let served = self.answer(control).await;
        // A driver that waits for a reply, or writes to the closed connection, gets an error.
        let _ = rustix::net::shutdown(&*control, rustix::net::Shutdown::Both);
        served
    }

    async fn answer(&self, control: &mut UnixStream) -> snowmelt_wire::Result<()> {
        let (reading, mut writing) = control.split();
        let requests = stream::try_unfold(reading, |mut reading| async move {
            let frame = read_frame_within(&mut reading, MAX_REQUEST_BYTES).await?;
            Ok::<_, WireError>(frame.map(|frame| (frame, reading)))
        });
        let mut requests = std::pin::pin!(requests);
        let mut plans = Plans::default();
        let mut replies: FuturesUnordered<BoxFuture<'_, (u64, DeskAnswer)>> =
            FuturesUnordered::new();
        loop {
            tokio::select! {
                frame = requests.next(), if replies.len() < MAX_REQUESTS + self.attempts.waiting() => {
                    let Some(frame) = frame.transpose()? else { return Ok(()) };
                    if frame.kind == Kind::Plan {
                        if !self.scope.allowance().plan() {
                            return Err(WireError::Unexpected { found: Kind::Plan, expected: "Request" });
                        }
                        plans.add(frame.payload)?;
                        continue;
                    }
                    let DriverRequest { id, ask } =
                        frame.expect(Kind::Request, "Request")?.parse()?;
                    if let Some(asked) = self.take(ask, &plans) {
                        replies.push(asked.map(move |answer| (id, answer)).boxed());
                    }
                }
                Some((id, answer)) = replies.next(), if !replies.is_empty() => {
                    reply(&mut writing, id, answer).await?;
                }
            }
        }
    }

    /// Begins a request. Returns a future for a request that needs a reply, and `None` otherwise.
    fn take<'a>(
        &'a self,
        ask: DriverOperation,
        plans: &Plans,
    ) -> Option<BoxFuture<'a, DeskAnswer>> {
        match ask {
            DriverOperation::List { location } => Some(self.list(location).boxed()),
            DriverOperation::Open { paths } => Some(async move { self.open(&paths) }.boxed()),
            DriverOperation::Reserve(gang) => {
                Some(async move { self.reserve(&gang).await }.boxed())
            }
            DriverOperation::Disband(gang) => {
                self.attempts.disband(gang);
                None
            }
            DriverOperation::Run(ask) => {
                let plan = plans.get(ask.plan);
                Some(async move { self.run(ask, plan?).await }.boxed())
            }
            DriverOperation::Ended { started, failure } => {
                Some(self.ended(started, failure).boxed())
            }
            DriverOperation::Connect { udf } => {
                Some(async move { self.connect(&udf).await }.boxed())
            }
            DriverOperation::RecallFooters { files } => Some(self.recall_footers(files).boxed()),
            DriverOperation::KeepFooters { footers } => {
                self.keep_footers(footers);
                None
            }
            DriverOperation::Expect { udfs } => {
                let udfs = self.scope.allowance().expect(udfs);
                self.attempts.expect(&udfs);
                None
            }
            DriverOperation::Release { tasks } => {
                self.attempts.release(&tasks);
                None
            }
            event => {
                if matches!(event, DriverOperation::Planned) {
                    *self.scope.reading() = None;
                }
                report(event, self.reporter);
                None
            }
        }
    }

    async fn list(&self, location: String) -> DeskAnswer {
        if !self.scope.locations.name(&location) {
            return Err(refused("it asked for a location that the query does not name"));
        }
        self.scope.allowance().list().map_err(refused)?;
        let folder = self.scope.folder.clone();
        let opener = Arc::clone(&self.scope.files);
        let listing = spawn_blocking(move || opener.find(&location, &folder));
        let files = match listing.await {
            Ok(listed) => listed.map_err(RequestFailure::of)?,
            Err(_) => return Err(refused("a folder could not be listed")),
        };
        self.scope.allowance().listed(&files);
        Ok((Answered::Listed { files }, Vec::new()))
    }

    fn open(&self, paths: &[String]) -> DeskAnswer {
        if paths.len() > MAX_DESCRIPTORS {
            return Err(refused("it asked for too many files at once"));
        }
        self.scope.allowance().open(paths.len()).map_err(refused)?;
        let open = |path: &String| self.scope.open_listed(path).map(OwnedFd::from);
        let files = paths.iter().map(open).collect::<std::result::Result<Vec<_>, _>>()?;
        *self.scope.reading() = paths.last().cloned();
        Ok((Answered::Opened, files))
    }

    async fn recall_footers(&self, files: Vec<String>) -> DeskAnswer {
        self.scope.allowance().recall(files.len()).map_err(refused)?;
        let store = Arc::clone(&self.runner.host.footers);
        let scope = self.scope.footers.clone();
        let recall = move |file: String| {
            let footer = store.get(&scope, &file).map(Bytes::from);
            KeptFooter { file, footer }
        };
        let recalled = spawn_blocking(move || files.into_iter().map(recall).collect());
        let footers = recalled.await.map_err(|_| refused("footers could not be read"))?;
        Ok((Answered::Footers { footers }, Vec::new()))
    }

    /// Keeps footers in the background: a query that needs a footer meanwhile reads the file.
    fn keep_footers(&self, footers: Vec<KeptFooter>) {
        if !self.scope.allowance().keep(footers.len()) {
            return;
        }
        let store = Arc::clone(&self.runner.host.footers);
        let scope = self.scope.footers.clone();
        spawn_blocking(move || {
            let footers =
                footers.iter().filter_map(|footer| Some((&footer.file, footer.footer.as_ref()?)));
            footers.for_each(|(file, footer)| store.put(&scope, file, footer));
        });
    }

    async fn reserve(&self, gang: &GangAsk) -> DeskAnswer {
        self.scope.allowance().reserve().map_err(refused)?;
        for task in gang.senders.iter().chain(&gang.receivers) {
            self.scope.check_granted(&task.files)?;
        }
        let gang = self.attempts.reserve(gang).await?;
        Ok((Answered::Reserved(gang), Vec::new()))
    }

    async fn run(&self, ask: TaskAsk, plan: Bytes) -> DeskAnswer {
        if !ask.s3.is_empty() && !self.scope.network {
            return Err(refused("it asked for a bucket that the query does not name"));
        }
        self.scope.allowance().run(&ask).map_err(refused)?;
        self.scope.check_granted(&ask.files)?;
        let (started, socket) = self.attempts.start(ask, plan).await?;
        Ok((Answered::Started { started }, vec![socket]))
    }

    async fn ended(&self, started: u64, failure: Option<RequestFailure>) -> DeskAnswer {
        let (worker, udfs) = self.attempts.end(started, failure).await?;
        Ok((Answered::Ended { worker, udfs }, Vec::new()))
    }

    async fn connect(&self, udf: &str) -> DeskAnswer {
        self.scope.allowance().connect(udf).map_err(refused)?;
        let connection = self.runner.connect(udf).await.map_err(RequestFailure::of)?;
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

    fn get(&self, number: u32) -> std::result::Result<Bytes, RequestFailure> {
        let plan = self.plans.get(number as usize).cloned();
        plan.ok_or_else(|| refused("it named a plan that it did not send"))
    }
}

async fn reply(
    writing: &mut tokio::net::unix::WriteHalf<'_>,
    id: u64,
    answer: DeskAnswer,
) -> snowmelt_wire::Result<()> {
    let (answered, descriptors) =
        answer.unwrap_or_else(|failed| (Answered::Failed(failed), Vec::new()));
    let frame = Frame::json(Kind::Reply, &Reply { id, answered })?;
    let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    write_frame_with(writing, &frame, &descriptors).await
}

fn report(event: DriverOperation, reporter: &dyn DriverReporter) {
    match event {
        DriverOperation::Planned => reporter.planned(),
        DriverOperation::Progress(progress) => reporter.progress(progress),
        DriverOperation::Merging => reporter.merging(),
        DriverOperation::Note { text } => reporter.note(&text),
        _ => (),
    }
}
