//! The caller's handles of a sandbox and of a zygote.
//!
//! Invariant: dropping a handle kills the process. The first reason given to [`Sandbox::kill`] is
//! the one in the outcome, unless the process had ended before.

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

use crate::cgroup::{FreezerFile, OpenFreezerFile};
use crate::message::{Ended, Operation, Started, Status, ZygoteReady};
use crate::reader;
use crate::registry::Registry;
use crate::spec::Limits;

/// The state that sandboxes and zygotes have in common: the process and its end.
pub(crate) struct SandboxProcess {
    id: SandboxId,
    limits: Limits,
    pidfd: OwnedFd,
    started: Started,
    paused: AtomicBool,
    open_freezer: OpenFreezerFile,
    started_at: Instant,
    /// The first reason for which the caller killed the process. `None` if it did not.
    reason: Mutex<Option<End>>,
    outcome: watch::Sender<Option<Outcome>>,
}

impl SandboxProcess {
    pub fn new(id: SandboxId, limits: Limits, pidfd: OwnedFd, started: Started) -> Self {
        Self {
            id,
            limits,
            pidfd,
            started,
            paused: AtomicBool::new(false),
            open_freezer: OpenFreezerFile::default(),
            started_at: Instant::now(),
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
        self.started_at.elapsed()
    }

    pub fn end(&self, ended: &Ended) {
        self.finish(Outcome {
            end: end_of(ended, &self.limits, self.reason()),
            peak_memory: ended.memory_peak,
            cpu: ended.cpu_us.map(Duration::from_micros),
            wall: Duration::from_micros(ended.wall_us),
        });
    }

    /// Resumes the process if it is paused.
    fn resume(&self) -> io::Result<()> {
        if self.paused.swap(false, Ordering::AcqRel) {
            self.open_freezer.thaw(self.freezer_file()?)
        } else {
            Ok(())
        }
    }

    /// Resumes the process before it ends. A process stopped by the version 1 freezer cannot die,
    /// and the next sandbox may get the same control group.
    fn release(&self) {
        // Fails only for a group that is gone.
        drop(self.resume());
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

    /// The cgroup v2 path of the process. `None` where the kernel has no such hierarchy.
    fn group(&self) -> Option<&Path> {
        self.started.freezer.as_ref()?.unified_group()
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

    fn freezer_file(&self) -> io::Result<&FreezerFile> {
        self.started.freezer.as_ref().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }
}

fn read_size(file: &Path) -> Option<ByteSize> {
    fs::read_to_string(file).ok()?.trim().parse().ok().map(ByteSize)
}

/// Combines the kernel's counts and the caller's reason into one end reason.
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

/// A started sandbox or zygote, before it is wrapped as either.
pub(crate) struct StartedSandbox {
    process: Arc<SandboxProcess>,
    channel: OwnedFd,
    log: Option<OwnedFd>,
    listener: Option<OwnedFd>,
    ready: ZygoteReady,
    registry: Arc<Registry>,
    kill_on_drop: bool,
}

impl StartedSandbox {
    pub fn new(
        process: Arc<SandboxProcess>,
        endpoints: Endpoints,
        ready: Option<ZygoteReady>,
        registry: Arc<Registry>,
    ) -> Self {
        let Endpoints { channel, log, listener } = endpoints;
        let ready = ready.unwrap_or_default();
        Self { process, channel, log: Some(log), listener, ready, registry, kill_on_drop: true }
    }
}

/// The server's descriptors of a sandbox.
pub(crate) struct Endpoints {
    pub channel: OwnedFd,
    pub log: OwnedFd,
    /// The seccomp listener, if the sandbox has a notifier.
    pub listener: Option<OwnedFd>,
}

impl Drop for StartedSandbox {
    fn drop(&mut self) {
        if self.kill_on_drop {
            self.process.kill(End::Killed);
        }
    }
}

/// A running sandbox.
pub struct Sandbox(StartedSandbox);

impl Sandbox {
    pub(crate) fn new(started: StartedSandbox) -> Self {
        Self(started)
    }

    /// The cgroup v2 path of the sandbox, by which eBPF programs identify it; `None` where the
    /// kernel has no cgroup v2 hierarchy.
    pub fn group(&self) -> Option<&Path> {
        self.0.process.group()
    }

    /// The identifier of the sandbox.
    pub fn id(&self) -> &SandboxId {
        &self.0.process.id
    }

    /// Connects to the sandbox's listening socket. There is no wait for the program to be ready:
    /// the socket listens before the program starts.
    ///
    /// # Errors
    /// `ConnectionRefused` once the program has closed the socket or ended. `WouldBlock` when the
    /// backlog is full and connecting would block the caller; a hostile program can cause that.
    pub fn connect(&self) -> io::Result<UnixStream> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // By inode, not by its name inside, which the program may have replaced.
        let path = format!("/proc/self/fd/{}", self.0.channel.as_raw_fd());
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        rustix::io::ioctl_fionbio(&socket, false)?;
        Ok(socket.into())
    }

    /// The read end of the sandbox's standard output and error; returned once. The caller must read
    /// it: a program that fills the pipe (64 KiB) blocks.
    pub fn take_log(&mut self) -> Option<OwnedFd> {
        self.0.log.take()
    }

    /// The seccomp listener for the sandbox's calls that name an address; returned once, if the
    /// network has a notifier ([`crate::Spawner::make_network_with_notifier`]). The calls wait
    /// until they are answered, and fail with `ENOSYS` once the listener is closed.
    pub fn take_listener(&mut self) -> Option<OwnedFd> {
        self.0.listener.take()
    }

    /// Waits for the end of the sandbox. Any number of tasks may wait, before and after the end.
    pub async fn wait(&self) -> Outcome {
        self.0.process.wait().await
    }

    /// Stops all processes of the sandbox until [`Self::resume`], at their next return from the
    /// kernel. Data sent to the sandbox is buffered. It can be killed while paused.
    ///
    /// # Errors
    /// `Unsupported` where the kernel has no freezer of control groups.
    pub fn pause(&self) -> io::Result<()> {
        let freezer_file = self.0.process.freezer_file()?;
        self.0.process.paused.store(true, Ordering::Release);
        self.0.process.open_freezer.freeze(freezer_file)
    }

    /// Resumes the processes of the sandbox if they are paused.
    ///
    /// # Errors
    /// Fails as [`Self::pause`].
    pub fn resume(&self) -> io::Result<()> {
        self.0.process.resume()
    }

    /// Kills all processes of the sandbox. `reason` ([`End::Timeout`] or [`End::Killed`]) is the
    /// one that the outcome reports.
    pub fn kill(&self, reason: End) {
        self.0.process.kill(reason);
    }

    /// The peak memory of the sandbox so far.
    pub fn memory_peak(&self) -> Option<ByteSize> {
        self.0.process.memory_peak()
    }

    /// The memory that is charged to the sandbox now: its own pages, its scratch, and file pages
    /// that it read first.
    pub fn memory(&self) -> Option<ByteSize> {
        self.0.process.memory()
    }

    /// The total time for which the sandbox's processes were throttled by their CPU limit. Only the
    /// difference between two readings is meaningful: the control group may be older than the
    /// sandbox.
    pub fn throttled(&self) -> Option<Duration> {
        self.0.process.started.throttled_file.as_ref()?.read()
    }

    /// The process id of the sandbox on the host. Valid only while the caller keeps this handle.
    pub fn pid(&self) -> i32 {
        self.0.process.pid()
    }
}

/// A Python interpreter that has imported its modules and waits to be forked.
///
/// Its children live in pid namespaces below its own, so they cannot outlive it. Dropping this
/// handle lets the zygote run until its last child has ended; [`Zygote::kill`] ends all of them
/// immediately.
pub struct Zygote(StartedSandbox);

impl Zygote {
    pub(crate) fn new(started: StartedSandbox) -> Self {
        Self(started)
    }

    /// The identifier of the zygote.
    pub fn id(&self) -> &SandboxId {
        &self.0.process.id
    }

    /// The lane that the zygote and its children belong to.
    pub(crate) fn lane(&self) -> &Arc<Registry> {
        &self.0.registry
    }

    /// The report of the zygote when its imports were done. It comes from the zygote, so it is not
    /// trusted.
    pub fn ready(&self) -> &ZygoteReady {
        &self.0.ready
    }

    /// The failed imports, each as `module: error`. Reported by the zygote, so not trusted.
    pub fn failed_imports(&self) -> &[String] {
        &self.0.ready.failed
    }

    /// The number of threads that the imports left running. Forking a process with such threads is
    /// unsafe, so the zygote must not be used if there are any. Reported by the zygote, so not
    /// trusted.
    pub fn threads(&self) -> u32 {
        self.0.ready.threads
    }

    /// The read end of the imports' output; returned once. See [`Sandbox::take_log`].
    pub fn take_log(&mut self) -> Option<OwnedFd> {
        self.0.log.take()
    }

    /// Waits for the end of the zygote.
    pub async fn wait(&self) -> Outcome {
        self.0.process.wait().await
    }

    /// Kills the zygote and all its children.
    pub fn kill(&self, reason: End) {
        self.0.process.kill(reason);
    }

    /// The peak memory of the zygote so far.
    pub fn memory_peak(&self) -> Option<ByteSize> {
        self.0.process.memory_peak()
    }

    /// The memory that is charged to the zygote now: its own pages, its scratch, and file pages
    /// that it read first.
    pub fn memory(&self) -> Option<ByteSize> {
        self.0.process.memory()
    }

    /// The process id of the zygote on the host. Valid only while the caller keeps this handle.
    pub fn pid(&self) -> i32 {
        self.0.process.pid()
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
