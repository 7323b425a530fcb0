//! The pid namespace of the spawner and of everything it makes, and its first process, *init*.
//!
//! A sandbox is tied to its lane by a parent-death signal, which hostile code can clear: the kernel
//! keeps it for one thread, and clears it when that thread changes its user or when another thread
//! executes a program. But no process can leave its pid namespace: when init ends, the kernel kills
//! all others in it, however deep.
//!
//! Invariant: init only waits for the end of a pipe, the other end of which only the lanes have,
//! and then ends. So when the last lane is dead, by whatever signal, no process of a sandbox is
//! left.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::pipe::{PipeFlags, pipe_with};
use snowmelt_kernel::clone::clone_sibling;
use snowmelt_kernel::namespace::{flags, unshare};
use snowmelt_kernel::{fds, process};

use super::control;

/// The lanes' handle of init.
pub(super) struct Init {
    pidfd: OwnedFd,
    /// The write end of the pipe, kept open by every lane.
    _lifeline: OwnedFd,
}

impl AsFd for Init {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// Makes the namespace, init, and the first lane, which does `work`; both processes are children of
/// the server. Init is announced before there is anything that it can end. This process can exit
/// then.
pub(super) fn make(control: OwnedFd, work: impl FnOnce(OwnedFd, Init) -> i32) -> io::Result<()> {
    let (end, lifeline) = pipe_with(PipeFlags::CLOEXEC)?;
    unshare(flags::PID)?;
    // The first process after the unshare becomes init of the new namespace.
    let init = clone_sibling(|| i32::from(wait(&end).is_err()))?;
    control::announce(&control, init.pidfd.as_fd())?;
    clone_sibling(|| {
        // The lane has only the write end; init sees the end of the pipe when no lane has it.
        drop(end);
        work(control, Init { pidfd: init.pidfd, _lifeline: lifeline })
    })?;
    Ok(())
}

/// Waits for the end of the pipe, as init. Sandboxes of a dead lane become its children, and the
/// kernel reaps them.
fn wait(end: &OwnedFd) -> io::Result<()> {
    fds::duplicate_to(end.as_fd(), 0)?;
    // Above all the write end of its own pipe: with that, it would wait for itself.
    fds::close_from(1)?;
    // Fails only for a process group leader, which is not in the terminal's foreground group.
    let _ = rustix::process::setsid();
    // Interrupts of a terminal are for the server, which ends everything in its order.
    process::ignore_signals(&process::INTERRUPTS)?;
    process::auto_reap_children()?;
    // No process writes, so the read returns at the end of the pipe.
    rustix::io::retry_on_intr(|| rustix::io::read(io::stdin(), &mut [0; 1]))?;
    Ok(())
}
