//! The agent's side of queries whose control is on another host, and whose tasks run here.
//!
//! Invariant: a query is here as long as the connection of its session. When that ends, its tasks
//! end and its outputs are removed, whatever else goes on.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, FuturesUnordered, StreamExt};
use snowmelt_node::{ProgramRequest, Unit};
use snowmelt_package::Silent;
use snowmelt_rpc::{Credential, HostStream, upgrade};
use snowmelt_types::{Code, ErrorReport, Report, Tenant};
use snowmelt_wire::{
    Error as WireError, Frame, Grants, Kind, MAX_REQUEST_BYTES, RequestFailure, read_frame_within,
    write_frame,
};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

use super::gang_part::GangParts;
use super::grants::{Granting, Missing, decline_copies, open_copy};
use super::streams;
use super::tasks::Tasks;
use crate::host::stored_code;
use crate::peers::messages::{
    GangLinks, GangPart, ImagePart, OpenQuery, PartReserved, QueryOpened, RelativeHost, STREAMS,
    SessionAnswer, SessionAsk, SessionReply, SessionRequest, StartTask, TaskEnd, TaskPlaced,
    TaskStarted, UdfPart,
};
use crate::peers::outputs::KeptOutputs;
use crate::peers::relay::{relay, wait_for_readers};
use crate::runner::{QueryRunner, StartedTask};
use crate::{TaskHost, UdfBinding, WorkerLimits};

/// The queries of other hosts' controls that have tasks here. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Hosted {
    host: TaskHost,
    credential: Credential,
    queries: Arc<Mutex<HashMap<String, Arc<Query>>>>,
}

/// A query of another host's control, while its session is open.
#[derive(Debug)]
struct Query {
    runner: QueryRunner,
    outputs: KeptOutputs,
    tasks: Tasks<StartedTask>,
    gangs: GangParts,
    control: Option<SocketAddr>,
    ended: CancellationToken,
}

/// Removes a query when its session ends.
struct Registered<'h> {
    hosted: &'h Hosted,
    query: Arc<Query>,
    name: String,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.hosted.lock().remove(&self.name);
        self.query.ended.cancel();
        // Their sandboxes are destroyed.
        self.query.tasks.clear();
        self.query.gangs.end_all();
    }
}

impl Hosted {
    pub fn new(host: TaskHost, credential: Credential) -> Self {
        Self { host, credential, queries: Arc::default() }
    }

    pub fn host(&self) -> &TaskHost {
        &self.host
    }

    /// Serves the session of a query until its connection ends.
    pub async fn serve_session(&self, mut stream: HostStream) {
        let served = async {
            let open: OpenQuery = first(&mut stream).await?;
            let registered = match self.open(open, stream.peer_addr().ok()).await {
                Ok((registered, refused)) => {
                    let opened: Result<_, ErrorReport> = Ok(QueryOpened { refused });
                    write_frame(&mut stream, &Frame::json(Kind::Reply, &opened)?).await?;
                    registered
                }
                Err(report) => {
                    let refused: Result<QueryOpened, _> = Err(report);
                    return write_frame(&mut stream, &Frame::json(Kind::Reply, &refused)?).await;
                }
            };
            registered.query.answer(&mut stream, &self.credential).await
        };
        if let Err(error) = served.await {
            tracing::debug!(%error, "the session of a query broke");
        }
    }

    async fn open(
        &self,
        open: OpenQuery,
        from: Option<SocketAddr>,
    ) -> Result<(Registered<'_>, BTreeMap<String, ErrorReport>), ErrorReport> {
        let OpenQuery { query: name, tenant, rights, memory, cpu, elapsed_us, .. } = open;
        let OpenQuery { udfs, files, control, .. } = open;
        let kept = self.host.outputs.keep(&name).ok_or_else(|| {
            ErrorReport::new(Code::PROTOCOL, format!("{name} has a session here already"))
        })?;
        let now = Instant::now();
        let accepted = now.checked_sub(Duration::from_micros(elapsed_us)).unwrap_or(now);
        let lacking = self.host.node.fetch_each(&tenant, &files).await;
        let mut bindings = Vec::new();
        let mut refused = BTreeMap::new();
        for udf in udfs {
            let named = udf.name.clone();
            match self.bind(&tenant, udf, &lacking).await {
                Ok(binding) => bindings.push(binding),
                Err(report) => drop(refused.insert(named, report)),
            }
        }
        let limits = WorkerLimits { memory, cpu };
        let gangs = GangParts::new(&self.host.streams, &name);
        let host = self.host.clone();
        let runner = QueryRunner::new(host, name.clone(), tenant, accepted, limits, bindings)
            .with_rights(rights);
        let query = Arc::new(Query {
            runner,
            outputs: kept,
            tasks: Tasks::default(),
            gangs,
            control: control.map(|address| reached(address, from)),
            ended: CancellationToken::new(),
        });
        self.lock().insert(name.clone(), Arc::clone(&query));
        Ok((Registered { hosted: self, query, name }, refused))
    }

    /// Prepares a function, unless it has one of the files that this host is `lacking`.
    async fn bind(
        &self,
        tenant: &Tenant,
        udf: UdfPart,
        lacking: &BTreeMap<String, ErrorReport>,
    ) -> Result<UdfBinding, ErrorReport> {
        if let Some(why) = udf.files.values().find_map(|file| lacking.get(&file.digest)) {
            return Err(why.clone());
        }
        let unit = self.unit(tenant, &udf).await?;
        let UdfPart { name, files, secrets, limits, load, timeout_ms, .. } = udf;
        let received = self.host.node.give_received(unit, &files, secrets).await;
        let unit = received.map_err(|error| error.report())?;
        let load = snowmelt_wire::Load { code: unit.code(), ..load };
        let timeout = Duration::from_millis(timeout_ms);
        Ok(UdfBinding { name, unit, limits: Arc::new(limits), load, timeout, source: None })
    }

    async fn unit(&self, tenant: &Tenant, udf: &UdfPart) -> Result<Unit, ErrorReport> {
        let UdfPart { code, packages, imports, limits, .. } = udf;
        let Some(ImagePart { name, place, .. }) = &udf.image else {
            let prepared = self
                .host
                .node
                .preparation()
                .prepare(tenant, code, packages, imports, &Silent)
                .await;
            return prepared.map_err(|error| error.report());
        };
        let code = stored_code(&self.host.node, code.clone()).await?;
        let request = ProgramRequest::python_in(name.clone());
        let prepared = self
            .host
            .node
            .preparation()
            .prepare_program(tenant, &code, &request, limits, place.as_ref())
            .await;
        prepared.map_err(|error| error.report())
    }

    /// Serves the connection of one attempt until its worker or its reader ends it.
    pub async fn serve_task(&self, mut stream: HostStream) {
        let served = async {
            let task: StartTask = first(&mut stream).await?;
            let plan = read_frame_within(&mut stream, MAX_REQUEST_BYTES).await?;
            let plan = plan.ok_or(WireError::Closed)?.expect(Kind::Plan, "Plan")?.payload;
            let query = self.lock().get(&task.query).cloned();
            let Some(query) = query else {
                let message = format!("{} has no session here", task.query);
                let report = ErrorReport::new(Code::PROTOCOL, message);
                return said(&mut stream, &TaskPlaced::Failed(RequestFailure::lost(report))).await;
            };
            tokio::select! {
                served = query.serve_task(task, plan, stream, &self.credential) => served,
                () = query.ended.cancelled() => Ok(()),
            }
        };
        if let Err(error) = served.await {
            tracing::debug!(%error, "the connection of a task broke");
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Query>>> {
        self.queries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Query {
    /// Answers the requests of a session.
    async fn answer(
        &self,
        stream: &mut HostStream,
        credential: &Credential,
    ) -> snowmelt_wire::Result<()> {
        let (reading, mut writing) = stream.split();
        let requests = stream::try_unfold(reading, |mut reading| async move {
            let frame = read_frame_within(&mut reading, MAX_REQUEST_BYTES).await?;
            Ok::<_, WireError>(frame.map(|frame| (frame, reading)))
        });
        let mut requests = std::pin::pin!(requests);
        let mut replies: FuturesUnordered<BoxFuture<'_, _>> = FuturesUnordered::new();
        loop {
            tokio::select! {
                frame = requests.next() => {
                    let Some(frame) = frame.transpose()? else { return Ok(()) };
                    let SessionRequest { id, ask } = frame.parse()?;
                    match ask {
                        SessionAsk::Release { attempts } => self.outputs.release(&attempts),
                        SessionAsk::Abandon { attempt } => self.tasks.abandon(attempt),
                        SessionAsk::EndGang { gang } => self.gangs.end(gang),
                        SessionAsk::ReserveGang(part) => {
                            // Before the next request, which may end it.
                            let answer = SessionAnswer::GangReserved(self.reserve(&part));
                            replies.push(async move { (id, answer) }.boxed());
                        }
                        ask => {
                            let reply = async move { (id, self.reply(ask, credential).await) };
                            replies.push(reply.boxed());
                        }
                    }
                }
                Some((id, answer)) = replies.next(), if !replies.is_empty() => {
                    let reply = Frame::json(Kind::Reply, &SessionReply { id, answer })?;
                    write_frame(&mut writing, &reply).await?;
                }
            }
        }
    }

    async fn reply(&self, ask: SessionAsk, credential: &Credential) -> SessionAnswer {
        let (attempt, failure) = match ask {
            SessionAsk::Ended { attempt, failure } => (attempt, failure),
            SessionAsk::ConnectGang(links) => return self.connect(&links, credential).await,
            SessionAsk::Ping { text } => return SessionAnswer::Pong { text },
            // The others have no reply.
            _ => return SessionAnswer::Pong { text: String::new() },
        };
        let Some(mut started) = self.tasks.end(attempt) else {
            let report = ErrorReport::new(Code::PROTOCOL, "a task was ended that does not run");
            return SessionAnswer::Failed(RequestFailure::of(report));
        };
        let output = started.take_output();
        match self.runner.ended(started, failure).await {
            Ok((worker, udfs)) => {
                if let Some(output) = output {
                    self.outputs.add(attempt, output);
                }
                let written = self.runner.take_written();
                SessionAnswer::Ended(TaskEnd { worker, udfs, written })
            }
            Err(failed) => SessionAnswer::Failed(failed),
        }
    }

    /// Reserves room for tasks of a gang.
    fn reserve(&self, part: &GangPart) -> PartReserved {
        let files = part.tasks.iter().flat_map(|task| &task.files);
        let missing = files
            .filter_map(|file| open_copy(&self.runner.files, file).err().map(|Missing(path)| path));
        let paths: Vec<String> = missing.collect();
        if !paths.is_empty() {
            return PartReserved::FilesMissing { paths };
        }
        match self.gangs.reserve(&self.runner, part) {
            true => PartReserved::Reserved,
            false => PartReserved::NoRoom,
        }
    }

    /// Connects the tasks of a gang that send from this host.
    async fn connect(&self, links: &GangLinks, credential: &Credential) -> SessionAnswer {
        let unknown =
            || ErrorReport::new(Code::SERVER_UNREACHABLE, "the address of control is not known");
        let dial = |at: RelativeHost| {
            let target = at.target(self.control, credential).ok_or_else(unknown);
            async move { upgrade::connect(&target?, STREAMS).await }.boxed()
        };
        match streams::connect(self.gangs.ends(), &self.runner.query, links, &dial).await {
            Ok(()) => SessionAnswer::GangConnected,
            Err(why) => SessionAnswer::GangNotConnected(why),
        }
    }

    /// Starts an attempt, and copies the frames of its worker to control.
    async fn serve_task(
        &self,
        task: StartTask,
        plan: Bytes,
        mut stream: HostStream,
        credential: &Credential,
    ) -> snowmelt_wire::Result<()> {
        let StartTask { query, attempt, ask, inputs } = task;
        // Before its files are opened: a task without room holds no descriptors.
        let room = match ask.gang {
            Some(gang) => self.gangs.take(gang, &ask),
            None => self.runner.reserve_at_once(&ask).map(|room| (room, Vec::new())),
        };
        let Some((room, streams)) = room else {
            decline_copies(self.outputs.all(), &inputs);
            return said(&mut stream, &TaskPlaced::NoRoom).await;
        };
        let copy = |file| open_copy(&self.runner.files, file);
        let files = match ask.files.iter().map(copy).collect::<Result<Vec<_>, _>>() {
            Ok(files) => files,
            Err(Missing(path)) => {
                decline_copies(self.outputs.all(), &inputs);
                return said(&mut stream, &TaskPlaced::FileMissing { path }).await;
            }
        };
        let Some(abandoned) = self.tasks.begin(attempt) else {
            decline_copies(self.outputs.all(), &inputs);
            return Ok(());
        };
        let outputs = self.outputs.all();
        let control = self.control;
        let host = &self.runner.host;
        let granting = Granting { host, query: &query, outputs, control, credential };
        // Other hosts wait for them already.
        granting.begin_copies(&inputs);
        said(&mut stream, &TaskPlaced::Placed).await?;
        let starting = async {
            let grants = Grants { files, streams, ..granting.inputs(inputs).await? };
            let (started, socket) = self.runner.start(ask, room, plan, grants).await?;
            Ok::<_, RequestFailure>((started, nonblocking(socket)?))
        };
        let started = tokio::select! {
            started = starting => started,
            () = abandoned.cancelled() => return Ok(()),
        };
        let (started, worker) = match started {
            Ok(started) => started,
            Err(failed) => {
                self.tasks.failed(attempt);
                return said(&mut stream, &TaskStarted::Failed(failed)).await;
            }
        };
        if !self.tasks.runs(attempt, started) {
            return Ok(());
        }
        said(&mut stream, &TaskStarted::Started).await?;
        wait_for_readers(&stream);
        relay(stream, worker).await;
        Ok(())
    }
}

fn nonblocking(socket: StdStream) -> Result<UnixStream, RequestFailure> {
    let worker = socket.set_nonblocking(true).and_then(|()| UnixStream::from_std(socket));
    worker.map_err(|error| {
        let message = format!("a task has no connection to its worker: {error}");
        RequestFailure::of(ErrorReport::new(Code::INTERNAL, message))
    })
}

/// Returns the address of control: the one that it named, or else the one from which it comes.
fn reached(mut address: SocketAddr, from: Option<SocketAddr>) -> SocketAddr {
    if let Some(from) = from.filter(|_| address.ip().is_unspecified()) {
        address.set_ip(from.ip());
    }
    address
}

async fn first<T: serde::de::DeserializeOwned>(
    stream: &mut HostStream,
) -> snowmelt_wire::Result<T> {
    let frame = read_frame_within(stream, MAX_REQUEST_BYTES).await?;
    frame.ok_or(WireError::Closed)?.expect(Kind::Request, "Request")?.parse()
}

async fn said(
    stream: &mut HostStream,
    answer: &impl serde::Serialize,
) -> snowmelt_wire::Result<()> {
    write_frame(stream, &Frame::json(Kind::Reply, answer)?).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_is_reached_where_it_listens_or_where_it_comes_from() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let from = Some(address("192.0.2.1:5555"));
        assert_eq!(reached(address("0.0.0.0:80"), from), address("192.0.2.1:80"));
        assert_eq!(reached(address("192.0.2.9:80"), from), address("192.0.2.9:80"));
    }
}
