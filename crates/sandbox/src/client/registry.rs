//! The handle's state of one lane of the spawner: pending requests and live sandboxes.
//!
//! Invariant: once the stream from the lane has ended, every waiter has been answered and every
//! live sandbox has an outcome; no caller waits for a dead lane.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde::Serialize;
use snowmelt_kernel::packet;
use snowmelt_types::{End, Outcome, SandboxId};
use tokio::io::unix::AsyncFd;
use tokio::sync::{oneshot, watch};

use super::process::{SandboxProcess, StartedSandbox};
use super::request::{Addresses, batches, encode, failed, no_sandbox};
use super::run_dir::RunDir;
use crate::message::{SpawnerEvent, SpawnerOperation, SpawnerRequest, StartProperties};
use crate::spec::{Limits, NetworkId};
use crate::{Error, Result};

/// The state of a lane, shared by the handle, its clones and everything that the lane started for
/// them.
pub(super) struct LaneRegistry {
    lane: u32,
    pid: u32,
    socket: Arc<AsyncFd<OwnedFd>>,
    /// The run directory. The readers of the lanes and the list of lanes hold strong references:
    /// the last one cleans it.
    run_dir: Weak<RunDir>,
    sequence: AtomicU64,
    state: Mutex<State>,
    gone: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    lost: bool,
    waiting: HashMap<u64, StartWaiter>,
    /// The number of pending requests that keep the lane busy.
    busy: usize,
    living: HashMap<SandboxId, Arc<SandboxProcess>>,
    networks: HashMap<u64, oneshot::Sender<Result<OwnedFd>>>,
}

struct StartWaiter {
    id: SandboxId,
    limits: Limits,
    /// Whether the lane works until it answers, instead of waiting for imports.
    keeps_busy: bool,
    reply: oneshot::Sender<Result<StartedSandbox>>,
}

impl State {
    fn answered(&mut self, sequence: u64) -> Option<StartWaiter> {
        let waiter = self.waiting.remove(&sequence)?;
        self.busy -= usize::from(waiter.keeps_busy);
        Some(waiter)
    }
}

/// The load of a lane, compared by requests in progress, then by live sandboxes.
pub(super) type LaneLoad = (usize, usize);

impl LaneRegistry {
    /// Takes over the socket of a lane that is ready; the caller starts the reader.
    pub fn new(
        lane: u32,
        pid: u32,
        socket: Arc<AsyncFd<OwnedFd>>,
        run_dir: &Arc<RunDir>,
    ) -> Arc<Self> {
        Arc::new(Self {
            lane,
            pid,
            socket,
            run_dir: Arc::downgrade(run_dir),
            sequence: AtomicU64::new(0),
            state: Mutex::default(),
            gone: watch::Sender::new(false),
        })
    }

    /// The number of the lane.
    pub fn lane(&self) -> u32 {
        self.lane
    }

    /// The process id of the lane.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The run directory, until the platform ends.
    pub fn run_dir(&self) -> Option<Arc<RunDir>> {
        self.run_dir.upgrade()
    }

    /// The load of the lane; `None` when it has ended.
    pub fn load(&self) -> Option<LaneLoad> {
        let state = self.state();
        (!state.lost).then(|| (state.busy, state.living.len()))
    }

    /// Whether a live sandbox of the lane has this id.
    pub fn has_live(&self, id: &SandboxId) -> bool {
        self.state().living.contains_key(id)
    }

    /// Requests another lane from this one, with `socket` as its control socket.
    pub async fn open(&self, lane: u32, socket: OwnedFd) -> Result<()> {
        let request =
            // No answer comes on this socket: the new lane reports on its own one.
            SpawnerRequest { sequence: u64::MAX, operation: SpawnerOperation::Open { lane } };
        self.send(&no_sandbox(), &request, &[socket.as_fd()]).await
    }

    /// Requests a sandbox and waits until it has started. If the caller stops waiting, the sandbox
    /// is killed.
    pub async fn begin(
        self: &Arc<Self>,
        id: SandboxId,
        limits: Limits,
        operation: SpawnerOperation,
    ) -> Result<StartedSandbox> {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        let keeps_busy =
            matches!(operation, SpawnerOperation::Start(_) | SpawnerOperation::Fork { .. });
        // Registered before it is sent: the answer may arrive before `send` returns.
        let pending = self.register(sequence, id.clone(), limits, keeps_busy)?;
        if let Err(error) = self.send(&id, &SpawnerRequest { sequence, operation }, &[]).await {
            return Err(pending.withdraw(error));
        }
        pending.started().await
    }

    /// Requests many sandboxes, in as few packets as possible; the results are in the order of the
    /// specs.
    pub async fn request_many<S: Serialize>(
        self: &Arc<Self>,
        specs: Vec<S>,
        known: impl Fn(&S) -> (SandboxId, Limits),
        operation: impl Fn(Vec<S>) -> SpawnerOperation,
    ) -> Vec<Result<PendingStart>> {
        let mut pending = Vec::with_capacity(specs.len());
        for batch in batches(specs) {
            let known: Vec<_> = batch.iter().map(&known).collect();
            // A batch has one sequence number in its packet; the lane counts on from it, one for
            // each spec.
            let first = self.sequence.fetch_add(batch.len() as u64, Ordering::Relaxed);
            let registered: Vec<_> = (first..)
                .zip(&known)
                .map(|(sequence, (id, limits))| self.register(sequence, id.clone(), *limits, true))
                .collect();
            let request = SpawnerRequest { sequence: first, operation: operation(batch) };
            let sent = self.send(&no_sandbox(), &request, &[]).await;
            pending.extend(registered.into_iter().map(|registered| match &sent {
                Ok(()) => registered,
                Err(error) => registered.and_then(|pending| Err(pending.withdraw_many(error))),
            }));
        }
        pending
    }

    /// Requests a network namespace, for the children of a zygote or for programs.
    pub async fn make_network(
        self: &Arc<Self>,
        network: NetworkId,
        owner: Option<SandboxId>,
        addresses: Addresses<'_>,
    ) -> Result<OwnedFd> {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        {
            let mut state = self.state();
            if state.lost {
                return Err(Error::SpawnerLost);
            }
            // Under the lock in which `lost` was read, so that `mark_lost` finds and drops the
            // sender.
            state.networks.insert(sequence, reply);
        }
        let has_notifier = matches!(addresses, Addresses::Notifier);
        let operation = SpawnerOperation::MakeNetwork { network, owner, has_notifier };
        let table = addresses.table();
        let request = SpawnerRequest { sequence, operation };
        self.send(&no_sandbox(), &request, table.as_slice()).await?;
        answer.await.unwrap_or(Err(Error::SpawnerLost))
    }

    fn register(
        self: &Arc<Self>,
        sequence: u64,
        id: SandboxId,
        limits: Limits,
        keeps_busy: bool,
    ) -> Result<PendingStart> {
        let (reply, answer) = oneshot::channel();
        let mut state = self.state();
        if state.lost {
            return Err(Error::SpawnerLost);
        }
        state.busy += usize::from(keeps_busy);
        state.waiting.insert(sequence, StartWaiter { id: id.clone(), limits, keeps_busy, reply });
        Ok(PendingStart { registry: self.clone(), sequence, answer: Some(answer), id })
    }

    async fn send(
        &self,
        id: &SandboxId,
        request: &SpawnerRequest,
        fds: &[BorrowedFd<'_>],
    ) -> Result<()> {
        let bytes = encode(id, request)?;
        let sent = self
            .socket
            .async_io(tokio::io::Interest::WRITABLE, |socket| packet::send(socket, &bytes, fds));
        sent.await.map_err(|error| {
            // A retry must not be given this lane, although its reader may not have seen the end
            // yet.
            if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) {
                self.mark_lost();
            }
            Error::SpawnerLost
        })
    }

    /// Sends a request without an answer, now or, if the socket is full, as soon as it is not.
    pub fn post(self: &Arc<Self>, id: SandboxId, operation: SpawnerOperation) {
        let request = SpawnerRequest { sequence: u64::MAX, operation };
        let Ok(bytes) = encode(&id, &request) else { return };
        let full = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        let sent = packet::send(self.socket.get_ref(), &bytes, &[]);
        if sent.is_err_and(|error| full(&error))
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let registry = self.clone();
            runtime.spawn(async move {
                // If the spawner has ended, so has the sandbox.
                drop(registry.send(&id, &request, &[]).await);
            });
        }
    }

    /// Tells the lane to end all its sandboxes, and then itself.
    pub async fn end(&self) -> Result<()> {
        let request = SpawnerRequest { sequence: u64::MAX, operation: SpawnerOperation::Shutdown };
        match self.send(&no_sandbox(), &request, &[]).await {
            Ok(()) | Err(Error::SpawnerLost) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// Waits until everything of the lane is removed.
    pub async fn ended(&self) {
        // An error means that the sender is dropped, and with it the reader: the same thing.
        drop(self.gone.subscribe().wait_for(|gone| *gone).await);
    }

    /// Notes that everything of the lane is removed.
    pub fn is_gone(&self) {
        self.gone.send_replace(true);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change of the state is complete within one call, so a panic elsewhere while the
        // lock was held cannot have left it half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles an event of the lane.
    pub fn handle(&self, event: SpawnerEvent, fds: Vec<OwnedFd>) {
        match event {
            SpawnerEvent::Started { sequence, started } => self.started(sequence, started, fds),
            SpawnerEvent::Network { sequence } => {
                let waiter = self.state().networks.remove(&sequence);
                if let (Some(waiter), Some(namespace)) = (waiter, fds.into_iter().next()) {
                    drop(waiter.send(Ok(namespace)));
                }
            }
            SpawnerEvent::Failed { sequence, failure } => {
                let network = self.state().networks.remove(&sequence);
                if let Some(waiter) = network {
                    drop(waiter.send(Err(failed(no_sandbox(), failure))));
                } else if let Some(waiter) = self.state().answered(sequence) {
                    let error = failed(waiter.id, failure);
                    drop(waiter.reply.send(Err(error)));
                }
            }
            SpawnerEvent::Ended { id, ended } => {
                if let Some(process) = self.state().living.remove(&id) {
                    process.end(&ended);
                }
            }
        }
    }

    fn started(&self, sequence: u64, started: StartProperties, mut fds: Vec<OwnedFd>) {
        let listener = if fds.len() > 3 { fds.pop() } else { None };
        let Ok([pidfd, channel, log]) = <[OwnedFd; 3]>::try_from(fds) else {
            tracing::error!(sequence, "the spawner sent a start without its descriptors");
            return;
        };
        let mut state = self.state();
        // No waiter: `mark_lost` has answered it already. The descriptors are dropped, and the
        // sandbox dies with its lane.
        let Some(waiter) = state.answered(sequence) else { return };
        let ready = started.zygote.clone().unwrap_or_default();
        let process =
            Arc::new(SandboxProcess::new(waiter.id.clone(), waiter.limits, pidfd, started));
        // In the same critical section as the removal of the waiter: `mark_lost` finds the start in
        // one of the two maps.
        state.living.insert(waiter.id, process.clone());
        drop(state);
        let log = Some(log);
        let sandbox = StartedSandbox { process, channel, log, listener, ready, kill_on_drop: true };
        // If the waiter is gone, the sandbox is dropped here, which kills it.
        drop(waiter.reply.send(Ok(sandbox)));
    }

    /// Ends all waiting and all sandboxes of a dead lane: the kernel has killed the sandboxes, or
    /// is about to.
    pub fn mark_lost(&self) {
        let mut state = self.state();
        (state.lost, state.busy) = (true, 0);
        let (waiting, living) =
            (std::mem::take(&mut state.waiting), std::mem::take(&mut state.living));
        // Dropping the senders notifies their waiters.
        state.networks.clear();
        drop(state);
        for waiter in waiting.into_values() {
            drop(waiter.reply.send(Err(Error::SpawnerLost)));
        }
        for process in living.into_values() {
            // The first reason stays: a process that the caller had killed keeps the caller's
            // reason.
            process.kill(End::SpawnerLost);
            process.finish(Outcome {
                end: process.reason().unwrap_or(End::SpawnerLost),
                peak_memory: None,
                cpu: None,
                wall: process.age(),
            });
        }
    }
}

impl Drop for LaneRegistry {
    fn drop(&mut self) {
        // The last user is gone: the spawner sees the end of its stream, removes everything and
        // exits, and our reader sees the end of its own stream.
        let _ = rustix::net::shutdown(self.socket.get_ref(), rustix::net::Shutdown::Write);
    }
}

/// A requested sandbox that has not started yet. Dropping it kills the sandbox.
pub(super) struct PendingStart {
    registry: Arc<LaneRegistry>,
    id: SandboxId,
    sequence: u64,
    answer: Option<oneshot::Receiver<Result<StartedSandbox>>>,
}

impl PendingStart {
    /// The lane that starts the sandbox.
    pub fn lane(&self) -> &Arc<LaneRegistry> {
        &self.registry
    }

    /// Waits until the sandbox has started.
    pub async fn started(mut self) -> Result<StartedSandbox> {
        let Some(answer) = &mut self.answer else { return Err(Error::SpawnerLost) };
        let result = answer.await.unwrap_or(Err(Error::SpawnerLost));
        self.answer = None;
        result
    }

    /// Withdraws the start because the request that contained it was never sent.
    fn withdraw_many(self, error: &Error) -> Error {
        let error = match error {
            Error::Spec { reason, .. } => {
                Error::Spec { id: self.id.clone(), reason: reason.clone() }
            }
            _ => Error::SpawnerLost,
        };
        self.withdraw(error)
    }

    /// Withdraws the start because its request was never sent.
    fn withdraw(mut self, error: Error) -> Error {
        self.answer = None;
        // Nothing was sent, so there is nothing to kill; only the load of the lane is corrected.
        self.registry.state().answered(self.sequence);
        error
    }
}

impl Drop for PendingStart {
    fn drop(&mut self) {
        // The lane handles packets in order, so the kill comes after the start that it withdraws.
        if self.answer.is_some() {
            self.registry.post(self.id.clone(), SpawnerOperation::Kill { id: self.id.clone() });
        }
    }
}
