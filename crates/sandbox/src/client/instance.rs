//! The caller's handles of a sandbox and of a zygote.
//!
//! Invariant: dropping a handle kills the process. The first reason given to [`Sandbox::kill`] is
//! the one in the outcome, unless the process had ended before.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use snowmelt_types::{ByteSize, End, Outcome, SandboxId};

use super::process::StartedSandbox;
use super::registry::LaneRegistry;
use crate::message::{SpawnerOperation, ZygoteReady};

/// A running sandbox.
pub struct Sandbox {
    started: StartedSandbox,
    /// The lane of the sandbox, which ends with its last user.
    _lane: Arc<LaneRegistry>,
}

impl Sandbox {
    pub(super) fn new(started: StartedSandbox, lane: Arc<LaneRegistry>) -> Self {
        Self { started, _lane: lane }
    }

    /// The cgroup v2 path of the sandbox, by which eBPF programs identify it; `None` where the
    /// kernel has no cgroup v2 hierarchy.
    pub fn group(&self) -> Option<&Path> {
        self.started.process.group()
    }

    /// The identifier of the sandbox.
    pub fn id(&self) -> &SandboxId {
        self.started.process.id()
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
        let path = format!("/proc/self/fd/{}", self.started.channel.as_raw_fd());
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        // Only connecting must not block: the stream is returned in the usual mode.
        rustix::io::ioctl_fionbio(&socket, false)?;
        Ok(socket.into())
    }

    /// The read end of the sandbox's standard output and error; returned once. The caller must read
    /// it: a program that fills the pipe (64 KiB) blocks.
    pub fn take_log(&mut self) -> Option<OwnedFd> {
        self.started.log.take()
    }

    /// The seccomp listener for the sandbox's calls that name an address; returned once, if the
    /// network has a notifier ([`crate::Spawner::make_network_with_notifier`]). The calls wait
    /// until they are answered, and fail with `ENOSYS` once the listener is closed.
    pub fn take_listener(&mut self) -> Option<OwnedFd> {
        self.started.listener.take()
    }

    /// Waits for the end of the sandbox. Any number of tasks may wait, before and after the end.
    pub async fn wait(&self) -> Outcome {
        self.started.process.wait().await
    }

    /// Stops all processes of the sandbox until [`Self::resume`], at their next return from the
    /// kernel. Data sent to the sandbox is buffered. It can be killed while paused.
    ///
    /// # Errors
    /// `Unsupported` where the kernel has no freezer of control groups, and `ESRCH` once the sandbox
    /// was killed or has ended.
    pub fn pause(&self) -> io::Result<()> {
        self.started.process.pause()
    }

    /// Resumes the processes of the sandbox if they are paused.
    ///
    /// # Errors
    /// Only when the kernel refuses to thaw its control group.
    pub fn resume(&self) -> io::Result<()> {
        self.started.process.resume()
    }

    /// Kills all processes of the sandbox. `reason` ([`End::Timeout`] or [`End::Killed`]) is the
    /// one that the outcome reports.
    pub fn kill(&self, reason: End) {
        self.started.process.kill(reason);
    }

    /// The peak memory of the sandbox so far.
    pub fn memory_peak(&self) -> Option<ByteSize> {
        self.started.process.memory_peak()
    }

    /// The memory that is charged to the sandbox now: its own pages, its scratch, and file pages
    /// that it read first.
    pub fn memory(&self) -> Option<ByteSize> {
        self.started.process.memory()
    }

    /// The total time for which the sandbox's processes were throttled by their CPU limit. Only the
    /// difference between two readings is meaningful: the control group may be older than the
    /// sandbox.
    pub fn throttled(&self) -> Option<Duration> {
        self.started.process.throttled()
    }

    /// The process id of the sandbox on the host. Valid only while the caller keeps this handle.
    pub fn pid(&self) -> i32 {
        self.started.process.pid()
    }
}

/// A Python interpreter that has imported its modules and waits to be forked.
///
/// Its children live in pid namespaces below its own, so they cannot outlive it. Dropping this
/// handle lets the zygote run until its last child has ended; [`Zygote::kill`] ends all of them
/// immediately.
pub struct Zygote {
    started: StartedSandbox,
    lane: Arc<LaneRegistry>,
}

impl Zygote {
    pub(super) fn new(started: StartedSandbox, lane: Arc<LaneRegistry>) -> Self {
        Self { started, lane }
    }

    /// The identifier of the zygote.
    pub fn id(&self) -> &SandboxId {
        self.started.process.id()
    }

    /// The lane that the zygote and its children belong to.
    pub(super) fn lane(&self) -> &Arc<LaneRegistry> {
        &self.lane
    }

    /// The report of the zygote when its imports were done. It comes from the zygote, so it is not
    /// trusted.
    pub fn ready(&self) -> &ZygoteReady {
        &self.started.ready
    }

    /// The failed imports, each as `module: error`. Reported by the zygote, so not trusted.
    pub fn failed_imports(&self) -> &[String] {
        &self.started.ready.failed
    }

    /// The number of threads that the imports left running. Forking a process with such threads is
    /// unsafe, so the zygote must not be used if there are any. Reported by the zygote, so not
    /// trusted.
    pub fn threads(&self) -> u32 {
        self.started.ready.threads
    }

    /// The read end of the imports' output; returned once. See [`Sandbox::take_log`].
    pub fn take_log(&mut self) -> Option<OwnedFd> {
        self.started.log.take()
    }

    /// Waits for the end of the zygote.
    pub async fn wait(&self) -> Outcome {
        self.started.process.wait().await
    }

    /// Kills the zygote and all its children.
    pub fn kill(&self, reason: End) {
        self.started.process.kill(reason);
    }

    /// The peak memory of the zygote so far.
    pub fn memory_peak(&self) -> Option<ByteSize> {
        self.started.process.memory_peak()
    }

    /// The memory that is charged to the zygote now: its own pages, its scratch, and file pages
    /// that it read first.
    pub fn memory(&self) -> Option<ByteSize> {
        self.started.process.memory()
    }

    /// The process id of the zygote on the host. Valid only while the caller keeps this handle.
    pub fn pid(&self) -> i32 {
        self.started.process.pid()
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        // A dropped handle retires the zygote, and its children go on: the kill would end them too.
        self.started.kill_on_drop = false;
        let id = self.id().clone();
        self.lane.post(id.clone(), SpawnerOperation::Retire { id });
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
