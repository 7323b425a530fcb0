//! Control's side of a query on another host: one connection that lasts as long as the query, and
//! one for each attempt of a task.
//!
//! Invariant: a session that is dead stays dead, and so do its tasks and their outputs: the host
//! ends them when its side of the connection ends. Dropping a session ends it.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use snowmelt_rpc::{HostStream, checksum_errors};
use snowmelt_types::{Code, ErrorReport, HostName, Report};
use snowmelt_wire::{
    Error as WireError, Frame, Kind, MAX_REQUEST_BYTES, RequestFailure, read_frame_within,
    write_frame,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::peers::Peer;
use crate::peers::messages::{
    GangLinks, GangPart, NotConnected, OUTPUTS, OpenQuery, PartReserved, QueryOpened, ReadOutputs,
    SESSION, SessionAnswer, SessionAsk, SessionReply, SessionRequest, TaskEnd,
};
use crate::peers::remote_outputs::{self, ReadError};

/// How long a host may take to answer whether it is there.
const PONG_TIMEOUT: Duration = Duration::from_secs(5);

/// The bytes that a probe sends there and back: several packets, so that damage is found that does
/// not affect small packets.
const PROBE_BYTES: usize = 16 << 10;

/// The session of one query on another host.
#[derive(Debug)]
pub(crate) struct Session {
    name: HostName,
    peer: Arc<dyn Peer>,
    refused: BTreeMap<String, ErrorReport>,
    requests: mpsc::UnboundedSender<Frame>,
    next: AtomicU64,
    shared: Arc<ReplyState>,
    _connection: AbortOnDropHandle<()>,
}

#[derive(Debug, Default)]
struct ReplyState {
    // Requests without a reply yet.
    waiting: Mutex<HashMap<u64, oneshot::Sender<SessionAnswer>>>,
    dead: CancellationToken,
    // Set if what the host sends is damaged on its way; taken once that is told.
    is_damaged: AtomicBool,
}

/// The reason why a host runs no tasks of a query.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotOpened {
    /// The host was lost meanwhile.
    #[error("the host {host} was lost")]
    Lost { host: HostName },
    /// Bytes from the host are damaged on their way, so its tasks and outputs are lost.
    #[error("data of the host {host} were damaged on their way")]
    Damaged { host: HostName },
    /// The query's functions were not prepared in time.
    #[error("the host {host} was not ready within {} s", within.as_secs())]
    Late { host: HostName, within: Duration },
    /// The host cannot be reached, or refuses the query.
    #[error("the host {host} cannot run tasks: {}", why.message)]
    Refused { host: HostName, why: Box<ErrorReport> },
}

impl Session {
    /// Opens the session of a query on a host, which may have to install packages first.
    pub async fn open(
        peer: Arc<dyn Peer>,
        open: &OpenQuery,
        within: Duration,
    ) -> Result<Self, NotOpened> {
        let host = peer.name();
        let opened = tokio::select! {
            opened = tokio::time::timeout(within, ask(&*peer, open)) => opened,
            () = peer.lost() => return Err(NotOpened::Lost { host }),
        };
        let Ok(opened) = opened else { return Err(NotOpened::Late { host, within }) };
        let (stream, QueryOpened { refused }) =
            opened.map_err(|why| NotOpened::Refused { host: host.clone(), why: Box::new(why) })?;
        let (requests, outgoing) = mpsc::unbounded_channel();
        let shared = Arc::new(ReplyState::default());
        let serving = serve(stream, outgoing, Arc::clone(&peer), Arc::clone(&shared));
        let connection = AbortOnDropHandle::new(tokio::spawn(serving));
        let next = AtomicU64::new(1);
        Ok(Self { name: host, peer, refused, requests, next, shared, _connection: connection })
    }

    /// Returns the name of the session's host.
    pub fn name(&self) -> &HostName {
        &self.name
    }

    /// Returns the session's host.
    pub fn peer(&self) -> &Arc<dyn Peer> {
        &self.peer
    }

    /// Returns why the host cannot run a function; `None` if it can.
    pub fn refused(&self, udf: &str) -> Option<&ErrorReport> {
        self.refused.get(udf)
    }

    /// Returns whether the tasks and outputs of the session are gone.
    pub fn is_dead(&self) -> bool {
        self.shared.dead.is_cancelled()
    }

    /// Returns whether the session ended because data of its host were damaged; true only once.
    pub fn take_damage(&self) -> bool {
        self.shared.is_damaged.swap(false, Ordering::Relaxed)
    }

    /// Waits until the tasks and outputs of the session are gone.
    pub async fn dead(&self) {
        self.shared.dead.cancelled().await;
    }

    /// Returns whether the host answers, and data reach it and come back undamaged. If not, or not
    /// in time, the session is dead from now on.
    pub async fn confirm(&self) -> bool {
        let ping = SessionAsk::Ping { text: "?".repeat(PROBE_BYTES) };
        let asked = tokio::time::timeout(PONG_TIMEOUT, self.request(ping)).await;
        let answers = matches!(asked, Ok(Some(SessionAnswer::Pong { .. })));
        if !answers {
            self.shared.end();
        }
        answers
    }

    /// Returns a token that is cancelled at the latest when the tasks of the session are gone.
    pub(super) fn ending(&self) -> CancellationToken {
        self.shared.dead.child_token()
    }

    /// Ends an attempt. If it has a result, the host keeps its output; otherwise the error says why
    /// not.
    pub async fn ended(
        &self,
        attempt: u64,
        failure: Option<RequestFailure>,
    ) -> Result<TaskEnd, RequestFailure> {
        match self.request(SessionAsk::Ended { attempt, failure }).await {
            Some(SessionAnswer::Ended(end)) => Ok(end),
            Some(SessionAnswer::Failed(failed)) => Err(failed),
            Some(_) => {
                let message = format!("{} gave the answer to another request", self.name);
                Err(RequestFailure::of(ErrorReport::new(Code::PROTOCOL, message)))
            }
            None => {
                let message = format!("the host {} was lost while a task ran on it", self.name);
                Err(RequestFailure::lost(ErrorReport::new(Code::WORKER_LOST, message)))
            }
        }
    }

    /// Reserves room for tasks of a gang; `None` if the host does not answer.
    pub async fn reserve_gang(&self, part: GangPart) -> Option<PartReserved> {
        match self.request(SessionAsk::ReserveGang(part)).await {
            Some(SessionAnswer::GangReserved(reserved)) => Some(reserved),
            _ => None,
        }
    }

    /// Connects the tasks of a gang that send from the host; `None` if it does not answer.
    pub async fn connect_gang(&self, links: GangLinks) -> Option<Result<(), NotConnected>> {
        match self.request(SessionAsk::ConnectGang(links)).await {
            Some(SessionAnswer::GangConnected) => Some(Ok(())),
            Some(SessionAnswer::GangNotConnected(why)) => Some(Err(why)),
            _ => None,
        }
    }

    /// Has the host end its part of a gang that is over.
    pub fn end_gang(&self, gang: u64) {
        self.tell(SessionAsk::EndGang { gang });
    }

    /// Has the host remove the outputs of these attempts, which are not read any more.
    pub fn release(&self, attempts: Vec<u64>) {
        self.tell(SessionAsk::Release { attempts });
    }

    /// Has the host give up the start of an attempt for which nobody waits any more.
    pub(super) fn abandon(&self, attempt: u64) {
        self.tell(SessionAsk::Abandon { attempt });
    }

    fn tell(&self, ask: SessionAsk) {
        if let Ok(frame) = request_frame(0, ask) {
            // A dead session has neither outputs nor attempts.
            let _ = self.requests.send(frame);
        }
    }

    /// Opens outputs on the session's host, to be read by a task on this host.
    pub async fn read(&self, asked: &ReadOutputs) -> Result<OwnedFd, ReadError> {
        let opening = async {
            let stream = self.peer.connect(OUTPUTS).await;
            let stream = stream.map_err(|error| unreadable(&self.name, &error))?;
            remote_outputs::open(stream, asked).await
        };
        tokio::select! {
            opened = opening => opened,
            () = self.dead() => {
                let lost = ErrorReport::new(Code::OUTPUT_LOST, "the host was lost");
                Err(unreadable(&self.name, &lost))
            }
        }
    }

    /// Sends a request and waits for its reply; `None` if the session is dead.
    async fn request(&self, ask: SessionAsk) -> Option<SessionAnswer> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let frame = request_frame(id, ask).ok()?;
        let (sender, receiver) = oneshot::channel();
        self.shared.lock().insert(id, sender);
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

impl ReplyState {
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
    mut stream: HostStream,
    mut outgoing: mpsc::UnboundedReceiver<Frame>,
    peer: Arc<dyn Peer>,
    shared: Arc<ReplyState>,
) {
    let (mut reading, mut writing) = stream.split();
    let receiving = async {
        loop {
            let frame = match read_frame_within(&mut reading, MAX_REQUEST_BYTES).await {
                Ok(Some(frame)) => frame,
                Err(WireError::Io(error)) if checksum_errors::is_damage(&error) => {
                    tracing::warn!(host = %peer.name(), %error, "a query gives up a host");
                    shared.is_damaged.store(true, Ordering::Relaxed);
                    return;
                }
                _ => return,
            };
            let Ok(SessionReply { id, answer }) = frame.parse() else { return };
            if let Some(waiting) = shared.lock().remove(&id) {
                // The caller may not wait any more.
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

/// Makes the frame of a request. Fails if the frame is so long that the host would close the
/// connection.
fn request_frame(id: u64, ask: SessionAsk) -> snowmelt_wire::Result<Frame> {
    let frame = Frame::json(Kind::Request, &SessionRequest { id, ask })?;
    match frame.payload.len() {
        long if long > MAX_REQUEST_BYTES as usize => Err(WireError::TooLong(long as u64)),
        _ => Ok(frame),
    }
}

/// Asks a host to open the session of a query.
async fn ask(peer: &dyn Peer, open: &OpenQuery) -> Result<(HostStream, QueryOpened), ErrorReport> {
    let mut stream = peer.connect(SESSION).await?;
    let opened = async {
        write_frame(&mut stream, &Frame::json(Kind::Request, open)?).await?;
        answer::<Result<QueryOpened, ErrorReport>>(&mut stream).await
    };
    let opened = opened.await.map_err(|error| error.report())??;
    Ok((stream, opened))
}

/// Reads the next answer on a connection.
pub(super) async fn answer<T: serde::de::DeserializeOwned>(
    stream: &mut HostStream,
) -> snowmelt_wire::Result<T> {
    let frame = read_frame_within(stream, MAX_REQUEST_BYTES).await?;
    frame.ok_or(WireError::Closed)?.expect(Kind::Reply, "Reply")?.parse()
}
