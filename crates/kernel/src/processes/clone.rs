//! Creating a process in new namespaces by copying this one. [`super::vfork`] is faster.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A new process.
#[derive(Debug)]
pub struct Cloned {
    /// The process id in the caller's pid namespace.
    pub pid: i32,
    /// The pidfd of the process, readable once the process has ended.
    pub pidfd: OwnedFd,
}

/// The flag for `cgroup`. The constant of `libc` overflows its type.
pub(crate) const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// The argument of clone3(2), first version with `cgroup` (Linux 5.7).
#[repr(C)]
#[derive(Default)]
pub(crate) struct CloneArguments {
    pub(crate) flags: u64,
    pub(crate) pidfd: u64,
    pub(crate) child_tid: u64,
    pub(crate) parent_tid: u64,
    pub(crate) exit_signal: u64,
    pub(crate) stack: u64,
    pub(crate) stack_size: u64,
    pub(crate) tls: u64,
    pub(crate) set_tid: u64,
    pub(crate) set_tid_size: u64,
    pub(crate) cgroup: u64,
}

/// Clones this process into new `namespaces` (`CLONE_NEW*`), directly into `cgroup` if given
/// (cgroup v2). The child runs `child` and exits with its result unless it executes a program.
///
/// Fails with `EBUSY` in a process that has more than one thread: in a copy of it, locks could be
/// held forever.
pub fn clone_into(
    namespaces: u64,
    cgroup: Option<BorrowedFd<'_>>,
    child: impl FnOnce() -> i32,
) -> io::Result<Cloned> {
    check_single_thread()?;
    let mut pidfd: i32 = -1;
    let mut arguments = CloneArguments {
        flags: namespaces | libc::CLONE_PIDFD as u64,
        pidfd: (&raw mut pidfd) as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..CloneArguments::default()
    };
    if let Some(cgroup) = cgroup {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: without CLONE_VM and with no stack of its own this is a fork: the child continues in
    // a private copy of the one thread's memory, in which no other thread can hold a lock.
    let pid =
        unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, size_of::<CloneArguments>()) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // A panic must not unwind into the copy of the caller's loop.
            let code = catch_unwind(AssertUnwindSafe(child)).unwrap_or(70);
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(code) }
        }
        // SAFETY: the kernel has just stored a new descriptor there, which has no other owner.
        pid => Ok(Cloned { pid: pid as i32, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } }),
    }
}

/// Copies this process into a sibling: a child of the same parent, in the namespaces for this
/// process's children, that runs `work` and exits with its result.
///
/// Fails with `EBUSY` in a process that has more than one thread, as [`clone_into`] does.
pub fn clone_sibling(work: impl FnOnce() -> i32) -> io::Result<Cloned> {
    check_single_thread()?;
    let mut pidfd: i32 = -1;
    // No exit signal: the kernel requires that a sibling has its parent's.
    let arguments = CloneArguments {
        flags: (libc::CLONE_PARENT | libc::CLONE_PIDFD) as u64,
        pidfd: (&raw mut pidfd) as u64,
        ..CloneArguments::default()
    };
    // SAFETY: a fork, as in `clone_into`: the copy continues in private memory in which no other
    // thread can hold a lock.
    let pid = unsafe {
        libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<CloneArguments>())
    };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // A panic must not unwind into the copy of the caller's loop.
            let code = catch_unwind(AssertUnwindSafe(work)).unwrap_or(70);
            // SAFETY: ends the copy without running the exit handlers of the original.
            unsafe { libc::_exit(code) }
        }
        // SAFETY: the kernel has just stored a new descriptor there, which has no other owner.
        pid => Ok(Cloned { pid: pid as i32, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } }),
    }
}

/// Checks that a process in new `namespaces` can be made, by making one that ends immediately.
/// Unlike [`clone_into`], also for processes with threads.
pub fn try_namespaces(namespaces: u64) -> io::Result<()> {
    let arguments = CloneArguments {
        flags: namespaces | libc::CLONE_VFORK as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..CloneArguments::default()
    };
    // SAFETY: a fork whose child only ends, which needs no lock that another thread could have
    // held.
    let pid = unsafe {
        libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<CloneArguments>())
    };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: ends the child without running the parent's exit handlers.
        0 => unsafe { libc::_exit(0) },
        pid => {
            // SAFETY: no status is requested, so no memory is written.
            unsafe { libc::waitpid(pid as i32, std::ptr::null_mut(), 0) };
            Ok(())
        }
    }
}

/// Fails with `EBUSY` if this process has more than one thread. Needs no `/proc`.
///
/// Not checked with `CLONE_VM`: a process that borrowed our memory still counts there for a moment
/// after its exec has woken this process.
pub(crate) fn check_single_thread() -> io::Result<()> {
    // SAFETY: requests a thread group of its own, which a process with one thread has: nothing
    // changes.
    match unsafe { libc::unshare(libc::CLONE_THREAD) } {
        0 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EBUSY)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_to_copy_a_process_with_threads() {
        let (send, receive) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || receive.recv());
        let error = clone_into(0, None, || 0).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
        drop(send);
        assert!(other.join().unwrap().is_err());
    }
}
