//! The process of a sandbox or zygote, as the server knows it: its figures, its end, and the
//! reason for which the server killed it.
//!
//! Invariant: a process has one outcome, which answers everyone who waits, before and after the
//! end. A process that was killed or has ended is not paused, and stays so.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::Signal;
use snowmelt_types::{ByteSize, End, Outcome, SandboxId};
use tokio::sync::watch;

use super::pidfd;
use crate::cgroup::{FreezerFile, OpenFreezerFile};
use crate::message::{EndStatus, SandboxEnd, StartProperties, ZygoteReady};
use crate::spec::Limits;

/// The state that sandboxes and zygotes have in common: the process and its end.
pub(super) struct SandboxProcess {
    id: SandboxId,
    limits: Limits,
    pidfd: OwnedFd,
    started: StartProperties,
    // Held while the group is frozen or thawed, so that the group always is what this says: a kill
    // between a note of the pause and the freezing would thaw first, and nobody would thaw later.
    pausing: Mutex<Pausing>,
    open_freezer: OpenFreezerFile,
    started_at: Instant,
    /// The first reason for which the caller killed the process. `None` if it did not.
    reason: Mutex<Option<End>>,
    outcome: watch::Sender<Option<Outcome>>,
}

impl SandboxProcess {
    /// Makes the state of a process that was started.
    pub fn new(id: SandboxId, limits: Limits, pidfd: OwnedFd, started: StartProperties) -> Self {
        Self {
            id,
            limits,
            pidfd,
            started,
            pausing: Mutex::new(Pausing::Running),
            open_freezer: OpenFreezerFile::default(),
            started_at: Instant::now(),
            reason: Mutex::default(),
            outcome: watch::Sender::new(None),
        }
    }

    /// Kills the process for this reason.
    pub fn kill(&self, reason: End) {
        let mut first = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        // Before the signal: the lane may report the end before this call returns.
        first.get_or_insert(reason);
        drop(first);
        // Fails only when the process is gone already.
        // Before a paused process is thawed, so that it runs no more.
        let _ = match *self.pausing() == Pausing::Paused {
            true => pidfd::kill_now(&self.pidfd),
            false => pidfd::kill(&self.pidfd),
        };
        self.release();
    }

    /// The first reason for which the caller killed the process.
    pub fn reason(&self) -> Option<End> {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The time since the start.
    pub fn age(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// Notes the end that the spawner has reported.
    pub fn end(&self, ended: &SandboxEnd) {
        self.finish(Outcome {
            end: end_of(ended, &self.limits, self.reason()),
            peak_memory: ended.memory_peak,
            cpu: ended.cpu_us.map(Duration::from_micros),
            wall: Duration::from_micros(ended.wall_us),
        });
    }

    /// The identifier of the sandbox.
    pub fn id(&self) -> &SandboxId {
        &self.id
    }

    /// Stops the processes of the sandbox until [`Self::resume`].
    pub fn pause(&self) -> io::Result<()> {
        let freezer_file = self.freezer_file()?;
        let mut pausing = self.pausing();
        if *pausing == Pausing::Over {
            return Err(Errno::SRCH.into());
        }
        // Also if the freezing fails: a thaw too many does no harm.
        *pausing = Pausing::Paused;
        self.open_freezer.freeze(freezer_file)
    }

    /// Resumes the process if it is paused.
    pub fn resume(&self) -> io::Result<()> {
        self.thaw(Pausing::Running)
    }

    /// Resumes the process for good, because it ends. A process stopped by the version 1 freezer
    /// cannot die, and the next sandbox may get the same control group.
    fn release(&self) {
        // Fails only for a group that is gone.
        drop(self.thaw(Pausing::Over));
    }

    fn thaw(&self, next: Pausing) -> io::Result<()> {
        let mut pausing = self.pausing();
        let before = *pausing;
        if before != Pausing::Over {
            *pausing = next;
        }
        // One of two callers thaws; a second write would cost a system call on each end.
        if before == Pausing::Paused {
            self.open_freezer.thaw(self.freezer_file()?)?;
        }
        Ok(())
    }

    fn pausing(&self) -> MutexGuard<'_, Pausing> {
        self.pausing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the outcome, which answers all waiters.
    pub fn finish(&self, outcome: Outcome) {
        self.release();
        self.outcome.send_replace(Some(outcome));
    }

    /// Waits for the end of the process.
    pub async fn wait(&self) -> Outcome {
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
    pub fn group(&self) -> Option<&Path> {
        self.started.freezer.as_ref()?.unified_group()
    }

    /// The process id on the host.
    pub fn pid(&self) -> i32 {
        pidfd::pid_of(&self.pidfd).cast_signed()
    }

    /// The peak memory so far, or in all once the process has ended.
    pub fn memory_peak(&self) -> Option<ByteSize> {
        if let Some(outcome) = &*self.outcome.borrow() {
            return outcome.peak_memory;
        }
        read_size(self.started.memory_peak_file.as_ref()?)
    }

    /// The memory that is charged to the process now.
    pub fn memory(&self) -> Option<ByteSize> {
        if self.outcome.borrow().is_some() {
            return Some(ByteSize(0));
        }
        read_size(self.started.memory_file.as_ref()?)
    }

    /// The time for which the processes were throttled by their CPU limit.
    pub fn throttled(&self) -> Option<Duration> {
        self.started.throttled_file.as_ref()?.read()
    }

    fn freezer_file(&self) -> io::Result<&FreezerFile> {
        self.started.freezer.as_ref().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }
}

/// Whether a process is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pausing {
    Running,
    Paused,
    /// The process was killed or has ended, and must not be paused any more.
    Over,
}

fn read_size(file: &Path) -> Option<ByteSize> {
    fs::read_to_string(file).ok()?.trim().parse().ok().map(ByteSize)
}

/// Combines the kernel's counts and the caller's reason into one end reason.
fn end_of(ended: &SandboxEnd, limits: &Limits, reason: Option<End>) -> End {
    let failed = ended.status.is_failure();
    // First, because the kernel kills with the same signal as a caller, and the limit explains the
    // end even if a timeout was about to fire.
    if failed && ended.oom_kills > 0 {
        let peak = ended.memory_peak.unwrap_or(limits.memory);
        return End::OutOfMemory { limit: limits.memory, peak };
    }
    match (ended.status, reason) {
        (EndStatus::Signal(SIGKILL), Some(reason)) => reason,
        // After the caller's reason: a program may go on after a refused fork, and be killed for
        // another reason.
        _ if failed && ended.forks_refused > 0 => End::PidsLimit { limit: limits.pids },
        (EndStatus::Exit(code), _) => End::Exit { code },
        (EndStatus::Signal(signal), _) => End::Signal { signal },
    }
}

const SIGKILL: i32 = Signal::KILL.as_raw();

/// A started sandbox or zygote, before it is wrapped as either. Dropping it kills the process.
pub(super) struct StartedSandbox {
    pub process: Arc<SandboxProcess>,
    /// The inode of the listening socket.
    pub channel: OwnedFd,
    /// The read end of the log, until it is taken.
    pub log: Option<OwnedFd>,
    /// The seccomp listener, if the sandbox has a notifier, until it is taken.
    pub listener: Option<OwnedFd>,
    /// The report of a zygote; empty for others.
    pub ready: ZygoteReady,
    pub kill_on_drop: bool,
}

impl Drop for StartedSandbox {
    fn drop(&mut self) {
        if self.kill_on_drop {
            self.process.kill(End::Killed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::sync::Barrier;

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    const FROZEN: &str = "FROZEN";
    const THAWED: &str = "THAWED";

    /// A process that can be killed, with a file in place of its freezer.
    struct Rig {
        folder: tempfile::TempDir,
        child: Child,
    }

    impl Rig {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            Self { folder, child: Command::new("sleep").arg("600").spawn().unwrap() }
        }

        fn process(&self) -> SandboxProcess {
            let file = self.folder.path().join("freezer.state");
            fs::write(&file, THAWED).unwrap();
            let frozen = FROZEN.to_owned();
            let thawed = THAWED.to_owned();
            let freezer = Some(FreezerFile { file, frozen, thawed });
            let started = StartProperties { freezer, ..StartProperties::default() };
            let pidfd = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()).unwrap();
            SandboxProcess::new(SandboxId::new(), Limits::default(), pidfd, started)
        }

        fn state(&self) -> String {
            fs::read_to_string(self.folder.path().join("freezer.state")).unwrap()
        }
    }

    impl Drop for Rig {
        fn drop(&mut self) {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
        }
    }

    /// Under version 1 it would never die, and its group would be frozen for the next sandbox.
    #[test]
    fn a_process_that_was_killed_or_has_ended_is_thawed_and_not_paused_again() {
        let rig = Rig::new();
        let outcome =
            || Outcome { end: End::Killed, peak_memory: None, cpu: None, wall: Duration::ZERO };
        let ends: [&dyn Fn(&SandboxProcess); 2] =
            [&|process| process.kill(End::Killed), &|process| process.finish(outcome())];
        for end in ends {
            let process = rig.process();
            process.pause().unwrap();
            assert_eq!(rig.state(), FROZEN);
            process.resume().unwrap();
            assert_eq!(rig.state(), THAWED);
            process.pause().unwrap();
            end(&process);
            assert_eq!(rig.state(), THAWED);
            assert_eq!(process.pause().unwrap_err().raw_os_error(), Some(3));
            process.resume().unwrap();
            assert!(process.pause().is_err());
            assert_eq!(rig.state(), THAWED);
        }
    }

    #[test]
    fn a_process_that_is_killed_just_when_it_is_paused_is_thawed() {
        let rig = Rig::new();
        for round in 0..1000 {
            let process = rig.process();
            let start = Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    drop(process.pause());
                });
                start.wait();
                process.kill(End::Killed);
            });
            assert_eq!(rig.state(), THAWED, "round {round}");
        }
    }
}
