//! Sends the output of a task to the tasks of another stage, which run at the same time.
//!
//! Each receiver has a lane: a task of the runtime that writes to its socket. The bytes that all
//! lanes have not sent yet are bounded: beyond that the writer waits. So a receiver that is slow
//! for a while does not keep rows from the others, and no receiver makes the sender use much
//! memory.
//!
//! A receiver that closes its socket needs no more rows. Whether it has ended well is not known
//! here: the driver follows the receiver, too.

use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use snowmelt_wire::{Frame, Kind, Receiver};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::Error;
use crate::exchange::target::{OutputPiece, OutputTarget, PiecePlace};

/// The streams of a task that sends.
pub(crate) struct StreamTarget {
    /// The lane of each partition.
    route: BTreeMap<u32, usize>,
    state: Mutex<State>,
    shared: Arc<LaneState>,
    /// Bytes that may wait while more rows are read.
    limit: u64,
}

struct State {
    lanes: Lanes,
    /// Bytes of each partition so far.
    sent: HashMap<u32, u64>,
}

/// The sockets, which become tasks of the runtime when the first rows are there.
enum Lanes {
    Idle(Vec<StdStream>),
    Running(Vec<UnboundedSender<Message>>),
}

enum Message {
    Piece(OutputPiece),
    End,
}

#[derive(Default)]
struct LaneState {
    /// Bytes that were not sent yet.
    waiting: AtomicU64,
    /// Lanes whose receivers need rows.
    open: AtomicUsize,
    changed: Notify,
    failed: Mutex<Option<std::io::Error>>,
}

impl StreamTarget {
    /// Streams to some receivers, by the sockets to their tasks.
    ///
    /// # Errors
    /// A receiver has no socket.
    pub(crate) fn new(
        receivers: &[Receiver],
        sockets: Vec<(u32, StdStream)>,
        limit: u64,
    ) -> Result<Self, Error> {
        let mut route = BTreeMap::new();
        for receiver in receivers {
            let lane = sockets.iter().position(|(task, _)| *task == receiver.task);
            let lane = lane.ok_or_else(|| not_connected(receiver.task))?;
            route.extend(receiver.partitions.iter().map(|partition| (*partition, lane)));
        }
        let shared = LaneState { open: AtomicUsize::new(sockets.len()), ..LaneState::default() };
        let lanes = Lanes::Idle(sockets.into_iter().map(|(_, socket)| socket).collect());
        let state = Mutex::new(State { lanes, sent: HashMap::new() });
        Ok(Self { route, state, shared: Arc::new(shared), limit })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends each stream once its rows are sent.
    fn end(&self) -> Result<(), Error> {
        for lane in self.lock().lanes.run(&self.shared)? {
            // One that is closed needs no end.
            let _ = lane.send(Message::End);
        }
        Ok(())
    }
}

impl Lanes {
    fn run(&mut self, shared: &Arc<LaneState>) -> Result<&[UnboundedSender<Message>], Error> {
        if let Self::Idle(sockets) = self {
            let start = |socket: StdStream| -> std::io::Result<_> {
                socket.set_nonblocking(true)?;
                let socket = UnixStream::from_std(socket)?;
                let (sender, messages) = unbounded_channel();
                tokio::spawn(lane(socket, messages, Arc::clone(shared)));
                Ok(sender)
            };
            let lanes = std::mem::take(sockets).into_iter().map(start);
            *self = Self::Running(lanes.collect::<Result<_, _>>().map_err(Error::Exchange)?);
        }
        match self {
            Self::Running(lanes) => Ok(lanes),
            Self::Idle(_) => Ok(&[]),
        }
    }
}

impl OutputTarget for StreamTarget {
    fn writes_all(&self) -> bool {
        true
    }

    fn is_wanted(&self) -> bool {
        self.shared.open.load(Ordering::Acquire) > 0
    }

    fn write(&self, pieces: Vec<OutputPiece>) -> Result<Vec<PiecePlace>, Error> {
        let mut state = self.lock();
        let State { lanes, sent } = &mut *state;
        let lanes = lanes.run(&self.shared)?;
        let mut places = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let partition = piece.partition;
            let bytes = piece.frames.len() as u64;
            let lane = self.route.get(&partition).and_then(|lane| lanes.get(*lane));
            let lane = lane.ok_or_else(|| no_receiver(partition))?;
            // Before it is sent: the lane may subtract it at once.
            self.shared.waiting.fetch_add(bytes, Ordering::AcqRel);
            // The receiver needs no more rows; the bytes are dropped, and nobody waits for them.
            if lane.send(Message::Piece(piece)).is_err() {
                self.shared.waiting.fetch_sub(bytes, Ordering::AcqRel);
            }
            let before = sent.entry(partition).or_default();
            // As if each partition were written to a file of its own: for the index.
            places.push(PiecePlace { object: None, offset: *before });
            *before += bytes;
        }
        Ok(places)
    }

    fn settle(&self, complete: bool) -> BoxFuture<'_, Result<(), Error>> {
        let settled = async move {
            if complete {
                self.end()?;
            } else if self.shared.waiting.load(Ordering::Acquire) > 0 {
                // The lanes may run on the same thread, and receivers need not wait for more rows.
                tokio::task::yield_now().await;
            }
            loop {
                let changed = self.shared.changed.notified();
                let mut changed = std::pin::pin!(changed);
                // Registered before the check, so that a change in between wakes it too.
                changed.as_mut().enable();
                if let Some(failed) = self.shared.take_failure() {
                    return Err(Error::Exchange(failed));
                }
                let waiting = self.shared.waiting.load(Ordering::Acquire);
                let is_settled = match complete {
                    true => !self.is_wanted(),
                    false => waiting <= self.limit,
                };
                if is_settled {
                    return Ok(());
                }
                changed.await;
            }
        };
        settled.boxed()
    }
}

impl LaneState {
    fn take_failure(&self) -> Option<std::io::Error> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn sent(&self, bytes: u64) {
        self.waiting.fetch_sub(bytes, Ordering::AcqRel);
        self.changed.notify_waiters();
    }

    /// Notes that a lane is done, or that its receiver needs no more rows.
    fn closed(&self) {
        self.open.fetch_sub(1, Ordering::AcqRel);
        self.changed.notify_waiters();
    }
}

/// Writes to one socket until the stream has ended, or nobody reads it.
async fn lane(
    mut socket: UnixStream,
    mut messages: UnboundedReceiver<Message>,
    shared: Arc<LaneState>,
) {
    let written = write_all(&mut socket, &mut messages, &shared).await;
    if let Err(error) = written
        && !matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
    {
        *shared.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }
    // Closed before it is drained, so that nothing is added behind the last piece that is counted.
    messages.close();
    while let Some(message) = messages.recv().await {
        if let Message::Piece(piece) = message {
            shared.sent(piece.frames.len() as u64);
        }
    }
    // Last: who waits for the end then finds that nothing waits any more.
    shared.closed();
}

async fn write_all(
    socket: &mut UnixStream,
    messages: &mut UnboundedReceiver<Message>,
    shared: &LaneState,
) -> std::io::Result<()> {
    let mut current = None;
    while let Some(message) = messages.recv().await {
        let Message::Piece(OutputPiece { partition, frames }) = message else {
            return socket.write_all(&header(Kind::End, Vec::new())?).await;
        };
        // Frames do not name their partition; a frame before them does, wherever it changes.
        let named = match current.replace(partition) == Some(partition) {
            true => Ok(()),
            false => {
                let partition = partition.to_le_bytes().to_vec();
                socket.write_all(&header(Kind::Partition, partition)?).await
            }
        };
        let written = match named {
            Ok(()) => socket.write_all(&frames).await,
            failed => failed,
        };
        // Also after a failure: the bytes do not wait any more.
        shared.sent(frames.len() as u64);
        written?;
    }
    // The task failed: without an end the receiver knows.
    Ok(())
}

/// Encodes a short frame.
fn header(kind: Kind, payload: Vec<u8>) -> std::io::Result<Vec<u8>> {
    let frame = Frame::new(kind, payload);
    let mut bytes = frame.header().map_err(std::io::Error::other)?.to_vec();
    bytes.extend_from_slice(&frame.payload);
    Ok(bytes)
}

fn not_connected(task: u32) -> Error {
    Error::Exchange(std::io::Error::other(format!("there is no stream to task {task}")))
}

fn no_receiver(partition: u32) -> Error {
    Error::Exchange(std::io::Error::other(format!("no task receives partition {partition}")))
}
