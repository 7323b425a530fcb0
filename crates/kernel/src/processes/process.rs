//! The end of processes, and the removal of their privileges.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::shared_structure;

/// The end of a child, and the resources of it and of its waited-for descendants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaped {
    /// The exit code, or the negated number of the signal that ended the process.
    pub code: i32,
    /// CPU time, user and system, in microseconds.
    pub cpu_us: u64,
}

/// Reaps a child that has ended; `None` if it is alive.
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

/// Makes the calling thread run before all others that wait for a processor, for work that is short
/// and must be on time: at a real-time priority if the user may, else with a better nice value.
/// Children inherit neither.
pub fn raise_scheduling_priority() -> io::Result<()> {
    // SAFETY: all-zero is a valid value of this structure of numbers.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = 1;
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: 0 is the calling thread, and the kernel only reads the structure.
    if unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } == 0 {
        return Ok(());
    }
    // Only for the calling thread, like all such calls on Linux.
    Ok(rustix::process::setpriority_process(None, BETTER_SHARE)?)
}

/// The nice value of a thread that runs before others: one step below the highest priority, so that
/// the kernel's own threads have precedence.
const BETTER_SHARE: i32 = -19;

/// Drops every privilege but `kept` (capability numbers): bounding, ambient, inheritable, permitted
/// and effective sets, and the return through set-user-id programs.
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

/// The version of capset(2) with 64 capabilities.
pub const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

shared_structure! {
    /// The first argument of capset(2).
    #[repr(C)]
    pub struct CapabilityHeader as "capability_header" {
        /// [`CAPABILITY_VERSION_3`].
        version: u32,
        /// The id of the process; 0 is the caller.
        pid: i32,
    }
}

shared_structure! {
    /// 32 bits of the second argument of capset(2), which has two of them.
    #[repr(C)]
    pub struct CapabilityWord as "capability_word" {
        /// The effective set.
        effective: u32,
        /// The permitted set.
        permitted: u32,
        /// The inheritable set.
        inheritable: u32,
    }
}

/// Sets the permitted and effective sets, and clears the inheritable one.
fn set_capabilities(set: u64) -> io::Result<()> {
    let header = CapabilityHeader { version: CAPABILITY_VERSION_3, pid: 0 };
    let word = |bits: u32| CapabilityWord { effective: bits, permitted: bits, inheritable: 0 };
    let words = [word(set as u32), word((set >> 32) as u32)];
    // SAFETY: version 3 reads one header and exactly two words, and both are alive.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, words.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets real, effective and saved ids of this single-threaded process, group first.
pub fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    become_user_in_groups(uid, gid, &[])
}

/// Becomes a user like [`become_user`], with these further groups.
pub fn become_user_in_groups(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    // SAFETY: the kernel reads as many numbers as the slice has; the rest are plain numbers.
    let results = unsafe {
        [
            libc::setgroups(groups.len(), groups.as_ptr()),
            libc::setresgid(gid, gid, gid),
            libc::setresuid(uid, uid, uid),
        ]
    };
    if results == [0; 3] { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives up the rights of root for good: becomes a user without capabilities, which no program that
/// is executed later gets back. The files of this process in `/proc` belong to the user then, so the
/// process can still open its own descriptors by their paths there.
pub fn give_up_root(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1)?;
    keep_only_capabilities(&[CAP_SETGID, CAP_SETUID])?;
    become_user_in_groups(uid, gid, groups)?;
    set_capabilities(0)?;
    prctl(libc::PR_SET_DUMPABLE, 1)
}

/// Makes a folder the home of this process and of the programs that it starts, and forgets the folders
/// that its user had outside of it. Must be called before the process has a second thread.
pub fn set_home(home: &Path) {
    const ELSEWHERE: [&str; 4] =
        ["XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"];
    // SAFETY: no other thread reads or writes the environment, as the caller has promised.
    unsafe {
        std::env::set_var("HOME", home);
        ELSEWHERE.iter().for_each(|name| std::env::remove_var(name));
    }
}

/// The capability to read all files.
pub(super) const CAP_DAC_READ_SEARCH: u32 = 2;
/// The capability by which a process changes its groups.
pub(super) const CAP_SETGID: u32 = 6;
/// The capability by which a process changes its user.
pub(super) const CAP_SETUID: u32 = 7;

/// Makes the ends of children readable from a descriptor instead of a signal of this process
/// (`SIGCHLD`, signalfd(2)); it does not block.
pub fn child_ends() -> io::Result<OwnedFd> {
    // SAFETY: all-zero is a valid value of the set, which the calls fill and read while it lives.
    let descriptor = unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut signals);
        libc::sigaddset(&raw mut signals, libc::SIGCHLD);
        let blocked =
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut());
        if blocked != 0 {
            return Err(io::Error::from_raw_os_error(blocked));
        }
        libc::signalfd(-1, &raw const signals, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    match descriptor {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the kernel has just made this descriptor, which has no other owner.
        descriptor => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
    }
}

/// The user that a daemon becomes which root has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DaemonUser {
    /// The number of the user.
    pub user: u32,
    /// The number of the user's group.
    pub group: u32,
}

impl DaemonUser {
    /// Becomes the user like [`become_user`], with these capabilities (their numbers) and no others,
    /// also for programs that are executed later.
    pub fn take_rights(self, kept: &[u32]) -> io::Result<()> {
        let before: Vec<u32> = kept.iter().copied().chain([CAP_SETGID, CAP_SETUID]).collect();
        keep_only_capabilities(&before)?;
        prctl(libc::PR_SET_NO_NEW_PRIVS, 1)?;
        prctl(libc::PR_SET_KEEPCAPS, 1)?;
        become_user(self.user, self.group)?;
        set_capabilities(kept.iter().fold(0, |set, capability| set | 1 << capability))
    }
}

/// Sets real, effective and saved ids of this single-threaded process, and keeps its other groups: in
/// a user namespace of an ordinary user they cannot be dropped.
pub fn become_user_with_its_groups(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: plain numbers only.
    let results = unsafe { [libc::setresgid(gid, gid, gid), libc::setresuid(uid, uid, uid)] };
    if results == [0; 2] { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Keeps SYS_ADMIN, and SETFCAP, without which the kernel does not let id 0 of this user namespace be
/// mapped in one below it. The user stays.
pub fn keep_for_own_namespace() -> io::Result<()> {
    const NEXT: u64 = 1 << 21 | 1 << 31;
    set_capabilities(NEXT)?;
    prctl(libc::PR_SET_DUMPABLE, 1)
}

/// Becomes a user like [`become_user`], but keeps SYS_ADMIN, SETUID and SETGID for the next steps,
/// and stays dumpable, so that the process may write its own id maps.
pub fn become_user_with_privileges(uid: u32, gid: u32) -> io::Result<()> {
    const NEXT: u64 = 1 << 21 | 1 << 7 | 1 << 6;
    prctl(libc::PR_SET_KEEPCAPS, 1)?;
    become_user(uid, gid)?;
    set_capabilities(NEXT)?;
    prctl(libc::PR_SET_DUMPABLE, 1)
}

/// Runs `work` as the effective user `uid`, with all privileges kept: a user namespace that is made
/// meanwhile belongs to that user, and the resources of its processes are counted for it. For a
/// single-threaded process of root, which returns by its real user.
pub fn as_effective_user<T>(uid: u32, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    /// `SECBIT_NO_SETUID_FIXUP`: changing the user id does not drop capabilities.
    const NO_FIXUP: libc::c_ulong = 1 << 2;
    prctl(libc::PR_SET_SECUREBITS, NO_FIXUP)?;
    let done = set_effective_user(uid).and_then(|()| {
        let done = work();
        set_effective_user(0).and(done)
    });
    prctl(libc::PR_SET_SECUREBITS, 0).and(done)
}

fn set_effective_user(uid: u32) -> io::Result<()> {
    const SAME: libc::uid_t = libc::uid_t::MAX;
    // SAFETY: plain numbers only.
    let result = unsafe { libc::setresuid(SAME, uid, SAME) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn prctl(option: libc::c_int, value: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the options that this file passes take plain numbers.
    let result = unsafe { libc::prctl(option, value, 0, 0, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The signals of a terminal and of a termination request.
pub const INTERRUPTS: [i32; 3] = [libc::SIGINT, libc::SIGHUP, libc::SIGTERM];

/// Resets `signals` to their default action; an exec does not reset ignored signals.
pub fn reset_signals(signals: &[i32]) -> io::Result<()> {
    set_disposition(signals, libc::SIG_DFL)
}

/// Ignores `signals`.
pub fn ignore_signals(signals: &[i32]) -> io::Result<()> {
    set_disposition(signals, libc::SIG_IGN)
}

/// Makes the kernel reap children as they end; their status is discarded.
pub fn auto_reap_children() -> io::Result<()> {
    set_disposition(&[libc::SIGCHLD], libc::SIG_IGN)
}

fn set_disposition(signals: &[i32], action: libc::sighandler_t) -> io::Result<()> {
    for signal in signals {
        // SAFETY: default and ignore run no code of this process.
        if unsafe { libc::signal(*signal, action) } == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Has the kernel kill a command when the thread that starts it ends: the command does not outlive
/// this process, whatever ends that. The thread has to live for as long as the command is needed.
pub fn end_with_thread(command: &mut Command) -> &mut Command {
    let parent = std::process::id();
    // SAFETY: between fork and exec only two system calls are made, which take plain numbers, and
    // errors are created without allocating.
    unsafe {
        command.pre_exec(move || {
            prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong)?;
            // It may have ended before.
            if u32::try_from(libc::getppid()) != Ok(parent) {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        })
    }
}

/// Makes a command start in a network namespace, and in a session of its own: it has no terminal
/// and never gets one.
pub fn start_in_network(command: &mut Command, network: OwnedFd) -> &mut Command {
    // SAFETY: between fork and exec only two system calls are made, which take plain numbers, and
    // an error is created without allocating.
    unsafe {
        command.pre_exec(move || {
            if libc::setns(network.as_raw_fd(), libc::CLONE_NEWNET) != 0 || libc::setsid() == -1 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_command_ends_with_the_thread_that_started_it() {
        let start = || {
            let mut command = Command::new("sleep");
            end_with_thread(command.arg("1000")).spawn().unwrap()
        };
        let mut child = std::thread::spawn(start).join().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }
}
