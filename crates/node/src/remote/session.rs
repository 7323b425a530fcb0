//! Control's side of a query on another host: one connection as long as the query runs, and one for
//! each attempt of a task.
//!
//! Invariant: a session that is dead stays dead, and so do its tasks and their outputs: the host
//! ends them when its side of the connection ends. Dropping a session ends it.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use snowmelt_types::{Code, ErrorReport, HostName, Report};
use snowmelt_wire::{
    Error as WireError, Failed, Frame, Kind, MAX_REQUEST_BYTES, read_frame_within, write_frame,
};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::messages::{
    OUTPUTS, OpenQuery, QueryOpened, ReadOutputs, SESSION, SessionAnswer, SessionAsk, SessionReply,
    SessionRequest, StartTask, TASKS, TaskEnd, TaskStarted,
};
use super::peers::Peer;
use super::reading::{self, ReadError};
use super::relay::relay;

/// How long a host may take to answer whether it is there.
const PONG_WITHIN: Duration = Duration::from_secs(5);

/// The session of one query on another host.
#[derive(Debug)]
pub(crate) struct Session {
    name: HostName,
    peer: Arc<dyn Peer>,
    refused: BTreeMap<String, ErrorReport>,
    requests: mpsc::UnboundedSender<Frame>,
    next: AtomicU64,
    shared: Arc<Shared>,
    _connection: AbortOnDropHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    // Requests without a reply yet.
    waiting: Mutex<HashMap<u64, oneshot::Sender<SessionAnswer>>>,
    dead: CancellationToken,
}

/// Why a task was not started.
#[derive(Debug)]
pub(crate) enum NotStarted {
    /// The host has no room for it now.
    NoRoom,
    /// The host does not have this file.
    FileMissing(String),
    /// The host was lost.
    Lost,
    /// The attempt has failed.
    Failed(Failed),
}

/// The connection of a running attempt. Dropping it ends the attempt.
#[derive(Debug)]
pub(crate) struct Relayed {
    end: CancellationToken,
    _relay: AbortOnDropHandle<()>,
}

impl Relayed {
    /// Ends the attempt when it is cancelled.
    pub fn end(&self) -> CancellationToken {
        self.end.clone()
    }
}

impl Session {
    /// Opens the session of a query on a host.
    pub async fn open(peer: Arc<dyn Peer>, open: &OpenQuery) -> Result<Self, ErrorReport> {
        let mut stream = peer.connect(SESSION).await?;
        let opened = async {
            write_frame(&mut stream, &Frame::json(Kind::Request, open)?).await?;
            answer::<Result<QueryOpened, ErrorReport>>(&mut stream).await
        };
        // To prepare functions takes any time, as long as the host is there.
        let opened = tokio::select! {
            opened = opened => opened.map_err(|error| error.report())?,
            () = peer.lost() => {
                let message = format!("the host {} was lost", peer.name());
                Err(ErrorReport::new(Code::SERVER_UNREACHABLE, message))
            }
        };
        let QueryOpened { refused } = opened?;
        let (requests, outgoing) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::default());
        let serving = serve(stream, outgoing, Arc::clone(&peer), Arc::clone(&shared));
        let connection = AbortOnDropHandle::new(tokio::spawn(serving));
        let (name, next) = (peer.name(), AtomicU64::new(1));
        Ok(Self { name, peer, refused, requests, next, shared, _connection: connection })
    }

    /// The name of its host.
    pub fn name(&self) -> &HostName {
        &self.name
    }

    /// Its host.
    pub fn peer(&self) -> &Arc<dyn Peer> {
        &self.peer
    }

    /// Why the host cannot run a function.
    pub fn refused(&self, udf: &str) -> Option<&ErrorReport> {
        self.refused.get(udf)
    }

    /// Whether its tasks and outputs are gone.
    pub fn is_dead(&self) -> bool {
        self.shared.dead.is_cancelled()
    }

    /// Waits until its tasks and outputs are gone.
    pub async fn dead(&self) {
        self.shared.dead.cancelled().await;
    }

    /// Whether the host answers. If it does not in time, the session is dead from now on.
    pub async fn confirm(&self) -> bool {
        let asked = tokio::time::timeout(PONG_WITHIN, self.request(SessionAsk::Ping)).await;
        let answers = matches!(asked, Ok(Some(SessionAnswer::Pong)));
        if !answers {
            self.shared.end();
        }
        answers
    }

    /// Starts an attempt of a task; the driver follows its worker over the socket.
    pub async fn start(
        &self,
        task: &StartTask,
        plan: &Bytes,
    ) -> Result<(Relayed, StdStream), NotStarted> {
        let started = tokio::select! {
            started = self.start_over(task, plan) => started,
            () = self.dead() => return Err(NotStarted::Lost),
        };
        let (far, answer) = started.map_err(|error| {
            tracing::info!(host = %self.name, %error, "a task was not started");
            NotStarted::Lost
        })?;
        match answer {
            TaskStarted::Started => {}
            TaskStarted::NoRoom => return Err(NotStarted::NoRoom),
            TaskStarted::FileMissing { path } => return Err(NotStarted::FileMissing(path)),
            TaskStarted::Failed(failed) => return Err(NotStarted::Failed(failed)),
        }
        let failed = |error: std::io::Error| {
            let message = format!("a task has no connection to its worker: {error}");
            NotStarted::Failed(Failed::of(ErrorReport::new(Code::INTERNAL, message)))
        };
        let (near, driver) = StdStream::pair().map_err(failed)?;
        near.set_nonblocking(true).map_err(failed)?;
        let near = UnixStream::from_std(near).map_err(failed)?;
        // The connection to a host that is frozen does not end by itself.
        let end = self.shared.dead.child_token();
        let ended = end.clone();
        let relaying = tokio::spawn(async move {
            tokio::select! {
                () = relay(far, near) => {}
                () = ended.cancelled() => {}
            }
        });
        Ok((Relayed { end, _relay: AbortOnDropHandle::new(relaying) }, driver))
    }

    async fn start_over(
        &self,
        task: &StartTask,
        plan: &Bytes,
    ) -> Result<(TcpStream, TaskStarted), ErrorReport> {
        let mut far = self.peer.connect(TASKS).await?;
        let asked = async {
            write_frame(&mut far, &Frame::json(Kind::Request, task)?).await?;
            write_frame(&mut far, &Frame::new(Kind::Plan, plan.clone())).await?;
            answer(&mut far).await
        };
        let started = asked.await.map_err(|error| error.report())?;
        Ok((far, started))
    }

    /// Ends an attempt: the host keeps its output if it has a result, and says otherwise why not.
    pub async fn ended(&self, attempt: u64, failure: Option<Failed>) -> Result<TaskEnd, Failed> {
        match self.request(SessionAsk::Ended { attempt, failure }).await {
            Some(SessionAnswer::Ended(end)) => Ok(end),
            Some(SessionAnswer::Failed(failed)) => Err(failed),
            Some(SessionAnswer::Pong) => {
                let message = format!("{} gave the answer to another request", self.name);
                Err(Failed::of(ErrorReport::new(Code::PROTOCOL, message)))
            }
            None => {
                let message = format!("the host {} was lost while a task ran on it", self.name);
                Err(Failed::lost(ErrorReport::new(Code::WORKER_LOST, message)))
            }
        }
    }

    /// The outputs of these attempts are not read any more.
    pub fn release(&self, attempts: Vec<u64>) {
        if let Ok(frame) = request_frame(0, SessionAsk::Release { attempts }) {
            // A dead session has none.
            let _ = self.requests.send(frame);
        }
    }

    /// Opens outputs on its host, to be read by a task on this one.
    pub async fn read(&self, asked: &ReadOutputs) -> Result<OwnedFd, ReadError> {
        let opening = async {
            let stream = self.peer.connect(OUTPUTS).await;
            let stream = stream.map_err(|error| unreadable(&self.name, &error))?;
            reading::open(stream, asked).await
        };
        tokio::select! {
            opened = opening => opened,
            () = self.dead() => {
                let lost = ErrorReport::new(Code::OUTPUT_LOST, "the host was lost");
                Err(unreadable(&self.name, &lost))
            }
        }
    }

    /// `None` if the session is dead.
    async fn request(&self, ask: SessionAsk) -> Option<SessionAnswer> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.shared.lock().insert(id, sender);
        let frame = request_frame(id, ask).ok()?;
        self.requests.send(frame).ok()?;
        tokio::select! {
            answer = receiver => answer.ok(),
            () = self.dead() => None,
        }
    }
}

fn unreadable(host: &HostName, error: &ErrorReport) -> ReadError {
    let message = format!("outputs on the host {host} cannot be read: {}", error.message);
    ReadError::Unreachable(ErrorReport::new(Code::OUTPUT_LOST, message).input(host.as_str()))
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<SessionAnswer>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        self.dead.cancel();
        self.lock().clear();
    }
}

/// Sends requests and receives replies until the connection ends or the host is lost.
async fn serve(
    stream: TcpStream,
    mut outgoing: mpsc::UnboundedReceiver<Frame>,
    peer: Arc<dyn Peer>,
    shared: Arc<Shared>,
) {
    let (mut reading, mut writing) = stream.into_split();
    let receiving = async {
        while let Ok(Some(frame)) = read_frame_within(&mut reading, MAX_REQUEST_BYTES).await {
            let Ok(SessionReply { id, answer }) = frame.parse() else { return };
            if let Some(waiting) = shared.lock().remove(&id) {
                // Who asked may not wait any more.
                let _ = waiting.send(answer);
            }
        }
    };
    let sending = async {
        while let Some(frame) = outgoing.recv().await {
            if write_frame(&mut writing, &frame).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = receiving => {}
        () = sending => {}
        () = peer.lost() => {}
        () = shared.dead.cancelled() => {}
    }
    tracing::info!(host = %peer.name(), "the session of a query on a host has ended");
    shared.end();
}

fn request_frame(id: u64, ask: SessionAsk) -> snowmelt_wire::Result<Frame> {
    Frame::json(Kind::Request, &SessionRequest { id, ask })
}

async fn answer<T: serde::de::DeserializeOwned>(
    stream: &mut TcpStream,
) -> snowmelt_wire::Result<T> {
    let frame = read_frame_within(stream, MAX_REQUEST_BYTES).await?;
    frame.ok_or(WireError::Closed)?.expect(Kind::Reply, "Reply")?.parse()
}
