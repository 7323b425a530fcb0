//! Making a process in fresh namespaces, and taking its privileges away.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A process that was just made.
#[derive(Debug)]
pub struct Cloned {
    /// Its id in the caller's pid namespace.
    pub pid: i32,
    /// Readable once it has ended.
    pub pidfd: OwnedFd,
}

/// Not taken from `libc`, whose constant overflows its type.
const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// The argument of clone3(2), first version with `cgroup` (Linux 5.7).
#[repr(C)]
#[derive(Default)]
struct CloneArguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Clones this process into fresh `namespaces` (`CLONE_NEW*`), straight into `cgroup` if there is
/// one (cgroup v2). The child runs `child` and exits with what it gives, if it does not exec.
///
/// Fails with `EBUSY` in a process that has more than one thread: a copy of it could find locks
/// held for ever.
pub fn clone_into(
    namespaces: u64,
    cgroup: Option<BorrowedFd<'_>>,
    child: impl FnOnce() -> i32,
) -> io::Result<Cloned> {
    if thread_count()? != 1 {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
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
    // SAFETY: without CLONE_VM and with no stack of its own this is a fork: the child goes on in
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
        // SAFETY: the kernel has just put a fresh descriptor there that nobody else owns.
        pid => Ok(Cloned { pid: pid as i32, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } }),
    }
}

/// Whether a process in fresh `namespaces` can be made, found by making one that ends at once.
/// Unlike [`clone_into`], for processes with threads too.
pub fn try_namespaces(namespaces: u64) -> io::Result<()> {
    let arguments = CloneArguments {
        flags: namespaces | libc::CLONE_VFORK as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..CloneArguments::default()
    };
    // SAFETY: a fork whose child does nothing but end, which needs no lock that another thread
    // could have held.
    let pid = unsafe {
        libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<CloneArguments>())
    };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: ends the child without running anything of the parent's.
        0 => unsafe { libc::_exit(0) },
        pid => {
            // SAFETY: no status is asked for, so no memory is written.
            unsafe { libc::waitpid(pid as i32, std::ptr::null_mut(), 0) };
            Ok(())
        }
    }
}

/// How many threads this process has. The folder has two links and one for each thread.
fn thread_count() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/task")?.nlink().saturating_sub(2))
}

/// How a child ended, and what it and its waited-for descendants used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaped {
    /// Exit code, or the negated number of the signal that ended it.
    pub code: i32,
    /// Processor time, user and system, in microseconds.
    pub cpu_us: u64,
}

/// Reaps a child that has ended; `None` if it lives.
pub fn reap(pidfd: BorrowedFd<'_>) -> io::Result<Option<Reaped>> {
    // SAFETY: all-zero is a valid value of both plain C structures.
    let (mut info, mut usage): (libc::siginfo_t, libc::rusage) = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live structures of the type that the kernel writes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_waitid,
            libc::P_PIDFD,
            pidfd.as_raw_fd(),
            &raw mut info,
            libc::WEXITED | libc::WNOHANG,
            &raw mut usage,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: after waitid the fields of SIGCHLD are set, or zero when nothing had ended.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    if pid == 0 {
        return Ok(None);
    }
    let code = if info.si_code == libc::CLD_EXITED { status } else { -status };
    Ok(Some(Reaped { code, cpu_us: microseconds(usage.ru_utime) + microseconds(usage.ru_stime) }))
}

fn microseconds(time: libc::timeval) -> u64 {
    time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64
}

/// Gives up every privilege but `kept` (capability numbers): bounding, ambient, inheritable,
/// permitted and effective sets, and the way back through set-user-id programs.
pub fn keep_only_capabilities(kept: &[u32]) -> io::Result<()> {
    for capability in (0..64).filter(|capability| !kept.contains(capability)) {
        // SAFETY: plain numbers only.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } != 0 {
            // EINVAL: this kernel has no capability of that number, nor of any greater one.
            match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::EINVAL) => break,
                error => return Err(error),
            }
        }
    }
    // SAFETY: plain numbers only.
    if unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    set_capabilities(kept.iter().fold(0, |set, capability| set | 1 << capability))
}

/// Sets the permitted and effective sets, and clears the inheritable one.
fn set_capabilities(set: u64) -> io::Result<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    #[repr(C)]
    struct Word {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let header = Header { version: VERSION_3, pid: 0 };
    let word = |bits: u32| Word { effective: bits, permitted: bits, inheritable: 0 };
    let words = [word(set as u32), word((set >> 32) as u32)];
    // SAFETY: version 3 reads one header and exactly two words, and both are alive.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, words.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets real, effective and saved ids of this single-threaded process, group first.
pub fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: a count of zero reads no memory; the rest are plain numbers.
    let results = unsafe {
        [
            libc::setgroups(0, std::ptr::null()),
            libc::setresgid(gid, gid, gid),
            libc::setresuid(uid, uid, uid),
        ]
    };
    if results == [0; 3] { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The signals of a terminal and of a polite end.
pub const INTERRUPTS: [i32; 3] = [libc::SIGINT, libc::SIGHUP, libc::SIGTERM];

/// Gives `signals` their default action, which ignored signals do not get back by exec.
pub fn reset_signals(signals: &[i32]) -> io::Result<()> {
    set_disposition(signals, libc::SIG_DFL)
}

/// Ignores `signals`.
pub fn ignore_signals(signals: &[i32]) -> io::Result<()> {
    set_disposition(signals, libc::SIG_IGN)
}

fn set_disposition(signals: &[i32], action: libc::sighandler_t) -> io::Result<()> {
    for signal in signals {
        // SAFETY: default and ignore run no code of ours.
        if unsafe { libc::signal(*signal, action) } == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
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
