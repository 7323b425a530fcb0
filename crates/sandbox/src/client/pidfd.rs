//! Processes of the spawner by their pidfds: their ids, and their ends.
//!
//! Invariant: a process that was reaped here is dead, and its id is not used any more.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use super::privileges::delegated;

/// The id of a process that is not reaped yet; 0 where the kernel does not report it.
pub(super) fn pid_of(pidfd: &OwnedFd) -> u32 {
    let file = format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd());
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let pid = text.lines().find_map(|line| line.strip_prefix("Pid:"));
    pid.and_then(|pid| pid.trim().parse().ok()).unwrap_or(0)
}

/// Kills a process, of whichever user it is. The signal may be sent a moment later.
pub(super) fn kill(pidfd: &OwnedFd) -> io::Result<()> {
    killed(pidfd, false)
}

/// Kills a process; the signal is sent when this returns.
pub(super) fn kill_now(pidfd: &OwnedFd) -> io::Result<()> {
    killed(pidfd, true)
}

fn killed(pidfd: &OwnedFd, now: bool) -> io::Result<()> {
    match (pidfd_send_signal(pidfd, Signal::KILL), delegated()) {
        (Err(Errno::PERM), Some(privileges)) => privileges.kill(pidfd.as_fd(), now),
        (sent, _) => Ok(sent?),
    }
}

/// Waits until a process has ended.
pub(super) fn wait(pidfd: &OwnedFd) {
    let _ = poll(&mut [PollFd::new(pidfd, PollFlags::IN)], None);
}

/// Waits until a process has ended; kills it after 5 s.
pub(super) fn reap(pidfd: &OwnedFd) {
    let patience = Timespec { tv_sec: 5, tv_nsec: 0 };
    if !poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&patience)).is_ok_and(|n| n > 0) {
        // Fails only if it has ended in the meantime.
        let _ = kill(pidfd);
        wait(pidfd);
    }
    // Until it is reaped, the init of its pid namespace cannot end. It is dead, but a debugger that
    // traces it comes first, so this may have to wait. Fails only for another process's child.
    let _ = retry_on_intr(|| waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED));
}

/// Ends processes and waits until they have ended. All are killed first, because the init of a pid
/// namespace ends after the others in it have been reaped.
pub(super) fn end_all(processes: &[OwnedFd]) {
    for process in processes {
        // Fails only for one that has ended already.
        let _ = kill(process);
    }
    processes.iter().rev().for_each(reap);
}
