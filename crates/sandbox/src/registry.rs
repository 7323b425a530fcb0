//! What the handle knows of the spawner: who waits for an answer, and who lives.
//!
//! Invariant: once the stream from the spawner has ended, every waiter has been answered and
//! every living sandbox has an outcome; nobody waits for a spawner that is gone.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use serde::Serialize;
use snowmelt_kernel::packet;
use snowmelt_types::{End, Outcome, SandboxId};
use tokio::io::unix::AsyncFd;
use tokio::sync::{oneshot, watch};

use crate::instance::{Begun, Life};
use crate::message::{Event, Failure, LONGEST_PACKET, Operation, Request, Started};
use crate::run_dir::RunDir;
use crate::spec::Limits;
use crate::{Error, Result};

/// Shared by the handle, its clones and all that they started.
pub(crate) struct Registry {
    socket: Arc<AsyncFd<OwnedFd>>,
    sequence: AtomicU64,
    state: Mutex<State>,
    gone: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    lost: bool,
    waiting: HashMap<u64, Waiter>,
    living: HashMap<SandboxId, Arc<Life>>,
}

struct Waiter {
    id: SandboxId,
    limits: Limits,
    reply: oneshot::Sender<Result<Begun>>,
}

impl Registry {
    /// Takes over the socket and begins to read it.
    pub fn new(socket: OwnedFd, child: Child, run_dir: RunDir) -> io::Result<Arc<Self>> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        #[expect(deprecated, reason = "it is unsound for types whose descriptor may change")]
        let socket = Arc::new(AsyncFd::new(socket)?);
        let registry = Arc::new(Self {
            socket: socket.clone(),
            sequence: AtomicU64::new(0),
            state: Mutex::default(),
            gone: watch::Sender::new(false),
        });
        tokio::spawn(read(socket, Arc::downgrade(&registry), child, run_dir));
        Ok(registry)
    }

    /// Asks for a sandbox and waits for it; if the caller stops waiting, it is killed.
    pub async fn begin(
        self: &Arc<Self>,
        id: SandboxId,
        limits: Limits,
        operation: Operation,
    ) -> Result<Begun> {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        let asked = self.enlist(sequence, id.clone(), limits)?;
        if let Err(error) = self.send(&id, &Request { sequence, operation }).await {
            return Err(asked.withdraw(error));
        }
        asked.begun().await
    }

    /// Asks for many sandboxes, in as few packets as there can be, and waits for all; the answers
    /// are in the order of the specs, and the failure of one is its own.
    pub async fn begin_many<S: Serialize>(
        self: &Arc<Self>,
        specs: Vec<S>,
        known: impl Fn(&S) -> (SandboxId, Limits),
        operation: impl Fn(Vec<S>) -> Operation,
    ) -> Vec<Result<Begun>> {
        let mut asked = Vec::with_capacity(specs.len());
        for batch in batches(specs) {
            let known: Vec<_> = batch.iter().map(&known).collect();
            let first = self.sequence.fetch_add(batch.len() as u64, Ordering::Relaxed);
            let enlisted: Vec<_> = (first..)
                .zip(&known)
                .map(|(sequence, (id, limits))| self.enlist(sequence, id.clone(), *limits))
                .collect();
            let request = Request { sequence: first, operation: operation(batch) };
            let sent = self.send(&SandboxId::from(String::new()), &request).await;
            asked.extend(enlisted.into_iter().map(|enlisted| match &sent {
                Ok(()) => enlisted,
                Err(error) => enlisted.and_then(|asked| Err(asked.withdraw_many(error))),
            }));
        }
        let mut begun = Vec::with_capacity(asked.len());
        for asked in asked {
            begun.push(match asked {
                Ok(asked) => asked.begun().await,
                Err(error) => Err(error),
            });
        }
        begun
    }

    fn enlist(self: &Arc<Self>, sequence: u64, id: SandboxId, limits: Limits) -> Result<Asked<'_>> {
        let (reply, answer) = oneshot::channel();
        let mut state = self.state();
        if state.lost {
            return Err(Error::SpawnerLost);
        }
        state.waiting.insert(sequence, Waiter { id: id.clone(), limits, reply });
        Ok(Asked { registry: self, sequence, answer: Some(answer), id })
    }

    async fn send(&self, id: &SandboxId, request: &Request) -> Result<()> {
        let bytes = encode(id, request)?;
        let sent = self
            .socket
            .async_io(tokio::io::Interest::WRITABLE, |socket| packet::send(socket, &bytes, &[]));
        sent.await.map_err(|_| Error::SpawnerLost)
    }

    /// Sends what needs no answer, now or, if the socket is full, as soon as it is not.
    pub fn post(self: &Arc<Self>, id: SandboxId, operation: Operation) {
        let request = Request { sequence: u64::MAX, operation };
        let Ok(bytes) = encode(&id, &request) else { return };
        let full = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        let sent = packet::send(self.socket.get_ref(), &bytes, &[]);
        if sent.is_err_and(|error| full(&error))
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let registry = self.clone();
            runtime.spawn(async move {
                // A spawner that is gone has killed it already.
                drop(registry.send(&id, &request).await);
            });
        }
    }

    /// Has the spawner end everything; returns when it is gone.
    pub async fn shutdown(&self) -> Result<()> {
        let mut gone = self.gone.subscribe();
        let request = Request { sequence: u64::MAX, operation: Operation::Shutdown };
        match self.send(&SandboxId::from(String::new()), &request).await {
            Ok(()) | Err(Error::SpawnerLost) => {}
            Err(other) => return Err(other),
        }
        // An error means that the sender is gone, and with it the reader: the same thing.
        drop(gone.wait_for(|gone| *gone).await);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change of the state is complete within one call, so a panic elsewhere while the
        // lock was held cannot have left it half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(self: &Arc<Self>, event: Event, fds: Vec<OwnedFd>) {
        match event {
            Event::Started { sequence, started } => self.started(sequence, started, fds),
            Event::Failed { sequence, failure } => {
                if let Some(waiter) = self.state().waiting.remove(&sequence) {
                    let error = failed(waiter.id, failure);
                    drop(waiter.reply.send(Err(error)));
                }
            }
            Event::Ended { id, ended } => {
                if let Some(life) = self.state().living.remove(&id) {
                    life.end(&ended);
                }
            }
        }
    }

    fn started(self: &Arc<Self>, sequence: u64, started: Started, fds: Vec<OwnedFd>) {
        let Ok([pidfd, channel, log]) = <[OwnedFd; 3]>::try_from(fds) else {
            tracing::error!(sequence, "the spawner sent a start without its descriptors");
            return;
        };
        let mut state = self.state();
        let Some(waiter) = state.waiting.remove(&sequence) else { return };
        let zygote = started.zygote.clone();
        let life = Arc::new(Life::new(waiter.id.clone(), waiter.limits, pidfd, started));
        state.living.insert(waiter.id, life.clone());
        drop(state);
        let begun = Begun::new(life, channel, log, zygote, self.clone());
        // A waiter that has gone away drops what was begun here, which kills it.
        drop(waiter.reply.send(Ok(begun)));
    }

    fn lose(&self) {
        let mut state = self.state();
        state.lost = true;
        let (waiting, living) =
            (std::mem::take(&mut state.waiting), std::mem::take(&mut state.living));
        drop(state);
        for waiter in waiting.into_values() {
            drop(waiter.reply.send(Err(Error::SpawnerLost)));
        }
        for life in living.into_values() {
            life.kill(End::Killed);
            life.finish(Outcome {
                end: life.reason().unwrap_or(End::Killed),
                peak_memory: None,
                cpu: None,
                wall: life.age(),
            });
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // The last user is gone: the spawner sees the end of its stream, removes everything and
        // exits, and our reader sees the end of its own.
        let _ = rustix::net::shutdown(self.socket.get_ref(), rustix::net::Shutdown::Write);
    }
}

/// What was asked for and is not there yet; dropped before, it is killed.
struct Asked<'a> {
    registry: &'a Arc<Registry>,
    id: SandboxId,
    sequence: u64,
    answer: Option<oneshot::Receiver<Result<Begun>>>,
}

impl Asked<'_> {
    async fn begun(mut self) -> Result<Begun> {
        let Some(answer) = &mut self.answer else { return Err(Error::SpawnerLost) };
        let begun = answer.await.unwrap_or(Err(Error::SpawnerLost));
        self.answer = None;
        begun
    }

    /// The request with this and others was never sent.
    fn withdraw_many(self, error: &Error) -> Error {
        let error = match error {
            Error::Spec { reason, .. } => {
                Error::Spec { id: self.id.clone(), reason: reason.clone() }
            }
            _ => Error::SpawnerLost,
        };
        self.withdraw(error)
    }

    /// The request was never sent.
    fn withdraw(mut self, error: Error) -> Error {
        self.answer = None;
        self.registry.state().waiting.remove(&self.sequence);
        error
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if self.answer.is_some() {
            self.registry.post(self.id.clone(), Operation::Kill { id: self.id.clone() });
        }
    }
}

/// Splits specs so that each part fits into a packet with room to spare. One that is too long by
/// itself is refused when it is sent.
fn batches<S: Serialize>(specs: Vec<S>) -> Vec<Vec<S>> {
    const MOST: usize = LONGEST_PACKET - 4096;
    let (mut batches, mut left) = (Vec::new(), 0);
    for spec in specs {
        let length = serde_json::to_vec(&spec).map_or(MOST, |bytes| bytes.len() + 1);
        if length > left || batches.is_empty() {
            batches.push(Vec::new());
            left = MOST;
        }
        left = left.saturating_sub(length);
        if let Some(batch) = batches.last_mut() {
            batch.push(spec);
        }
    }
    batches
}

/// Reads events until the spawner is gone, then makes sure that nothing of it is left.
async fn read(
    socket: Arc<AsyncFd<OwnedFd>>,
    registry: Weak<Registry>,
    child: Child,
    run_dir: RunDir,
) {
    let mut buffer = vec![0; LONGEST_PACKET];
    loop {
        let received = socket.async_io(tokio::io::Interest::READABLE, |socket| {
            packet::receive(socket.as_fd(), &mut buffer)
        });
        let packet = match received.await {
            Ok(packet) if packet.length > 0 => packet,
            Ok(_) => break,
            Err(error) => {
                tracing::debug!(%error, "the spawner's stream broke");
                break;
            }
        };
        match serde_json::from_slice(&buffer[..packet.length]) {
            Ok(event) => {
                if let Some(registry) = registry.upgrade() {
                    registry.handle(event, packet.fds);
                }
            }
            Err(error) => {
                tracing::error!(%error, "the spawner sent what is no event");
                break;
            }
        }
    }
    if let Some(registry) = registry.upgrade() {
        registry.lose();
    }
    // Reaping and cleaning block for a moment.
    let cleaned = tokio::task::spawn_blocking(move || bury(child, &run_dir)).await;
    if let Ok(Err(error)) = cleaned {
        tracing::warn!(%error, "what the spawner left could not be removed");
    }
    if let Some(registry) = registry.upgrade() {
        registry.gone.send_replace(true);
    }
}

/// Reaps the spawner, by force if it hangs, and removes what it left.
fn bury(mut child: Child, run_dir: &RunDir) -> Result<()> {
    const PATIENCE: u32 = 500;
    for _ in 0..PATIENCE {
        if !matches!(child.try_wait(), Ok(None)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // Both fail only for a child that was reaped already.
    drop(child.kill());
    drop(child.wait());
    run_dir.clean()
}

fn encode(id: &SandboxId, request: &Request) -> Result<Vec<u8>> {
    let refused = |reason: String| Error::Spec { id: id.clone(), reason };
    let bytes = serde_json::to_vec(request).map_err(|error| refused(error.to_string()))?;
    if bytes.len() > LONGEST_PACKET {
        return Err(refused(format!(
            "its arguments and environment take {} bytes of at most {LONGEST_PACKET}",
            bytes.len()
        )));
    }
    Ok(bytes)
}

fn failed(id: SandboxId, failure: Failure) -> Error {
    match failure {
        Failure::Step { step, errno } => {
            Error::Start { id, step, source: io::Error::from_raw_os_error(errno) }
        }
        Failure::Spec { reason } => Error::Spec { id, reason },
        Failure::ZygoteLost { zygote } => Error::ZygoteLost { id: zygote },
    }
}
