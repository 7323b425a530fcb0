//! The pid namespace of the spawner and all that it makes, and its first process, *init*.
//!
//! A sandbox is tied to its lane by a parent-death signal, which a hostile one can get rid of: the
//! kernel keeps it for one thread, and clears it when that thread changes its user or when another
//! thread executes a program. No process can leave its pid namespace: when init ends, the kernel
//! ends all others in it, however deep.
//!
//! Invariant: init does nothing but wait for the end of a pipe whose other end only lanes have, and
//! ends then. So when the last lane is dead, by whatever signal, nothing of a sandbox is left.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::pipe::{PipeFlags, pipe_with};
use snowmelt_kernel::clone::clone_sibling;
use snowmelt_kernel::namespace::{flags, unshare};
use snowmelt_kernel::{fds, packet, process};

use crate::message::MADE;

/// The lanes' side of it.
pub(super) struct Init {
    pidfd: OwnedFd,
    /// Kept open by every lane, and by its copies.
    _lifeline: OwnedFd,
}

impl AsFd for Init {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// Makes the namespace, init, and the first lane, which does `work`; both are children of the server.
/// Init is announced before there is anything that it can end. This process can exit then.
pub(super) fn make(control: OwnedFd, work: impl FnOnce(OwnedFd, Init) -> i32) -> io::Result<()> {
    let (end, lifeline) = pipe_with(PipeFlags::CLOEXEC)?;
    unshare(flags::PID)?;
    let init = clone_sibling(|| i32::from(wait(&end).is_err()))?;
    packet::send(&control, MADE, &[init.pidfd.as_fd()])?;
    clone_sibling(|| {
        drop(end);
        work(control, Init { pidfd: init.pidfd, _lifeline: lifeline })
    })?;
    Ok(())
}

/// What init does. Sandboxes of a dead lane become its children, and are reaped by the kernel.
fn wait(end: &OwnedFd) -> io::Result<()> {
    fds::place(end.as_fd(), 0)?;
    fds::close_from(1)?;
    // Fails only for the leader of a group, which is not in the terminal's foreground group.
    let _ = rustix::process::setsid();
    process::ignore_signals(&process::INTERRUPTS)?;
    process::leave_children_to_the_kernel()?;
    // No process writes, so the first read returns at the end.
    rustix::io::retry_on_intr(|| rustix::io::read(io::stdin(), &mut [0; 1]))?;
    Ok(())
}
