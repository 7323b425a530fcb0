//! What the caller holds of a sandbox or a zygote.
//!
//! Invariant: dropping it kills it. The first reason given to [`Sandbox::kill`] is the one that
//! the outcome tells, unless the process had come to its end before.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Signal, pidfd_send_signal};
use snowmelt_types::{ByteSize, End, Outcome, SandboxId};
use tokio::sync::watch;

use crate::cgroup::{Held, Switch};
use crate::message::{Ended, Operation, Started, Status, ZygoteReady};
use crate::reader;
use crate::registry::Registry;
use crate::spec::Limits;

/// What both kinds share: the process and its end.
pub(crate) struct Life {
    id: SandboxId,
    limits: Limits,
    pidfd: OwnedFd,
    started: Started,
    paused: AtomicBool,
    held: Held,
    begun: Instant,
    /// The first reason for which the caller killed it.
    reason: Mutex<Option<End>>,
    outcome: watch::Sender<Option<Outcome>>,
}

impl Life {
    pub fn new(id: SandboxId, limits: Limits, pidfd: OwnedFd, started: Started) -> Self {
        Self {
            id,
            limits,
            pidfd,
            started,
            paused: AtomicBool::new(false),
            held: Held::default(),
            begun: Instant::now(),
            reason: Mutex::default(),
            outcome: watch::Sender::new(None),
        }
    }

    pub fn kill(&self, reason: End) {
        let mut first = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(reason);
        drop(first);
        // Fails only when the process is gone already.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        self.release();
    }

    pub fn reason(&self) -> Option<End> {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn age(&self) -> Duration {
        self.begun.elapsed()
    }

    pub fn end(&self, ended: &Ended) {
        self.finish(Outcome {
            end: end_of(ended, &self.limits, self.reason()),
            peak_memory: ended.memory_peak,
            cpu: ended.cpu_us.map(Duration::from_micros),
            wall: Duration::from_micros(ended.wall_us),
        });
    }

    /// Lets it go on if it is paused.
    fn go_on(&self) -> io::Result<()> {
        if self.paused.swap(false, Ordering::AcqRel) {
            self.held.go(self.switch()?)
        } else {
            Ok(())
        }
    }

    /// Lets it go on before it ends. A process that the freezer of version 1 stopped cannot die,
    /// and the next sandbox may get the control group.
    fn release(&self) {
        // Fails only for a group that is gone.
        drop(self.go_on());
    }

    pub fn finish(&self, outcome: Outcome) {
        self.release();
        self.outcome.send_replace(Some(outcome));
    }

    async fn wait(&self) -> Outcome {
        let mut outcome = self.outcome.subscribe();
        // The sender is `self`, so the channel cannot close while we wait.
        let known = outcome.wait_for(Option::is_some).await.ok().and_then(|known| known.clone());
        known.unwrap_or(Outcome {
            end: End::Killed,
            peak_memory: None,
            cpu: None,
            wall: self.age(),
        })
    }

    /// Its control group of version 2, where there is one.
    fn group(&self) -> Option<&Path> {
        let file = &self.started.switch.as_ref()?.file;
        file.ends_with("cgroup.freeze").then(|| file.parent()).flatten()
    }

    fn pid(&self) -> i32 {
        reader::pid_of(&self.pidfd).cast_signed()
    }

    fn memory_peak(&self) -> Option<ByteSize> {
        if let Some(outcome) = &*self.outcome.borrow() {
            return outcome.peak_memory;
        }
        read_size(self.started.memory_peak_file.as_ref()?)
    }

    fn memory(&self) -> Option<ByteSize> {
        if self.outcome.borrow().is_some() {
            return Some(ByteSize(0));
        }
        read_size(self.started.memory_file.as_ref()?)
    }

    fn switch(&self) -> io::Result<&Switch> {
        self.started.switch.as_ref().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }
}

fn read_size(file: &Path) -> Option<ByteSize> {
    fs::read_to_string(file).ok()?.trim().parse().ok().map(ByteSize)
}

/// Puts what the kernel counted and what the caller did together into one reason.
fn end_of(ended: &Ended, limits: &Limits, reason: Option<End>) -> End {
    let failed = ended.status.is_failure();
    if failed && ended.oom_kills > 0 {
        let peak = ended.memory_peak.unwrap_or(limits.memory);
        return End::OutOfMemory { limit: limits.memory, peak };
    }
    match (ended.status, reason) {
        (Status::Signal(SIGKILL), Some(reason)) => reason,
        _ if failed && ended.forks_refused > 0 => End::PidsLimit { limit: limits.pids },
        (Status::Exit(code), _) => End::Exit { code },
        (Status::Signal(signal), _) => End::Signal { signal },
    }
}

const SIGKILL: i32 = Signal::KILL.as_raw();

/// A sandbox or zygote that has begun, before it is known as either.
pub(crate) struct Begun {
    life: Arc<Life>,
    channel: OwnedFd,
    log: Option<OwnedFd>,
    listener: Option<OwnedFd>,
    ready: ZygoteReady,
    registry: Arc<Registry>,
    kill_on_drop: bool,
}

impl Begun {
    pub fn new(
        life: Arc<Life>,
        ends: Ends,
        ready: Option<ZygoteReady>,
        registry: Arc<Registry>,
    ) -> Self {
        let Ends { channel, log, listener } = ends;
        let ready = ready.unwrap_or_default();
        Self { life, channel, log: Some(log), listener, ready, registry, kill_on_drop: true }
    }
}

/// Our ends of what leads into a sandbox.
pub(crate) struct Ends {
    pub channel: OwnedFd,
    pub log: OwnedFd,
    /// Of one that is guarded.
    pub listener: Option<OwnedFd>,
}

impl Drop for Begun {
    fn drop(&mut self) {
        if self.kill_on_drop {
            self.life.kill(End::Killed);
        }
    }
}

/// A running sandbox.
pub struct Sandbox(Begun);

impl Sandbox {
    pub(crate) fn new(begun: Begun) -> Self {
        Self(begun)
    }

    /// Its control group of version 2, by which the kernel's programs know it; none where the
    /// kernel has no such hierarchy.
    pub fn group(&self) -> Option<&Path> {
        self.0.life.group()
    }

    /// Its identifier.
    pub fn id(&self) -> &SandboxId {
        &self.0.life.id
    }

    /// Connects to the sandbox's listening socket. It never waits for the program to be ready:
    /// the socket listens before the program begins.
    ///
    /// # Errors
    /// `ConnectionRefused` once the program has closed the socket or ended, `WouldBlock` when so
    /// many connections wait to be accepted that one more would hold up the caller: a hostile
    /// program can bring that about by itself.
    pub fn connect(&self) -> io::Result<UnixStream> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // By the inode, not by its name inside, which the program may have put to anything.
        let path = format!("/proc/self/fd/{}", self.0.channel.as_raw_fd());
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        rustix::io::ioctl_fionbio(&socket, false)?;
        Ok(socket.into())
    }

    /// The read end of its standard output and error, once. Somebody must read it: a program
    /// that fills the pipe (64 KiB) waits.
    pub fn take_log(&mut self) -> Option<OwnedFd> {
        self.0.log.take()
    }

    /// What hears its calls that name an address, once, if it is guarded
    /// ([`crate::Spawner::make_guarded_network`]): they wait until they are answered, and fail
    /// with `ENOSYS` once this is closed.
    pub fn take_listener(&mut self) -> Option<OwnedFd> {
        self.0.listener.take()
    }

    /// Waits for its end; any number may wait, before and after.
    pub async fn wait(&self) -> Outcome {
        self.0.life.wait().await
    }

    /// Stops all its processes until [`Self::resume`], at their next return from the kernel; what
    /// is sent to it waits. It can be killed meanwhile.
    ///
    /// # Errors
    /// `Unsupported` where the kernel has no freezer of control groups.
    pub fn pause(&self) -> io::Result<()> {
        let switch = self.0.life.switch()?;
        self.0.life.paused.store(true, Ordering::Release);
        self.0.life.held.stop(switch)
    }

    /// Lets its processes go on if they are paused.
    ///
    /// # Errors
    /// As [`Self::pause`].
    pub fn resume(&self) -> io::Result<()> {
        self.0.life.go_on()
    }

    /// Kills it with all its processes. `reason` ([`End::Timeout`] or [`End::Killed`]) is what
    /// the outcome will say.
    pub fn kill(&self, reason: End) {
        self.0.life.kill(reason);
    }

    /// The most memory it has held so far.
    pub fn memory_peak(&self) -> Option<ByteSize> {
        self.0.life.memory_peak()
    }

    /// The memory charged to it now: its own pages, its scratch, and files that it read first.
    pub fn memory(&self) -> Option<ByteSize> {
        self.0.life.memory()
    }

    /// How long its processes had to wait because its share of the processor was used up. Only
    /// the difference between two looks means something: its control group may be older than it.
    pub fn throttled(&self) -> Option<Duration> {
        self.0.life.started.throttled_file.as_ref()?.read()
    }

    /// Its process id on the host. Whoever uses it must hold this handle meanwhile.
    pub fn pid(&self) -> i32 {
        self.0.life.pid()
    }
}

/// A Python interpreter that has imported its modules and waits to be forked.
///
/// Its children live in pid namespaces below its own, so they cannot outlive it: dropping this
/// handle lets the zygote go on until the last child has ended; [`Zygote::kill`] ends all at once.
pub struct Zygote(Begun);

impl Zygote {
    pub(crate) fn new(begun: Begun) -> Self {
        Self(begun)
    }

    /// Its identifier.
    pub fn id(&self) -> &SandboxId {
        &self.0.life.id
    }

    /// The lane that it and its children belong to.
    pub(crate) fn lane(&self) -> &Arc<Registry> {
        &self.0.registry
    }

    /// What it said when its imports were done. The zygote's own word.
    pub fn ready(&self) -> &ZygoteReady {
        &self.0.ready
    }

    /// `module: error` of each import that failed. The zygote's own word.
    pub fn failed_imports(&self) -> &[String] {
        &self.0.ready.failed
    }

    /// Threads that the imports left running: forking such a process is not safe, so do not use
    /// it. The zygote's own word.
    pub fn threads(&self) -> u32 {
        self.0.ready.threads
    }

    /// The read end of what the imports print, once. See [`Sandbox::take_log`].
    pub fn take_log(&mut self) -> Option<OwnedFd> {
        self.0.log.take()
    }

    /// Waits for its end.
    pub async fn wait(&self) -> Outcome {
        self.0.life.wait().await
    }

    /// Kills it and all its children.
    pub fn kill(&self, reason: End) {
        self.0.life.kill(reason);
    }

    /// The most memory it has held so far.
    pub fn memory_peak(&self) -> Option<ByteSize> {
        self.0.life.memory_peak()
    }

    /// The memory charged to it now: its own pages, its scratch, and files that it read first.
    pub fn memory(&self) -> Option<ByteSize> {
        self.0.life.memory()
    }

    /// Its process id on the host. Whoever uses it must hold this handle meanwhile.
    pub fn pid(&self) -> i32 {
        self.0.life.pid()
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        self.0.kill_on_drop = false;
        let id = self.id().clone();
        self.0.registry.post(id.clone(), Operation::Retire { id });
    }
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox").field("id", self.id()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Zygote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zygote").field("id", self.id()).finish_non_exhaustive()
    }
}
