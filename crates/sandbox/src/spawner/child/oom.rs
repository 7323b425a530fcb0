//! The order in which the kernel kills processes when the machine is out of memory: functions, then
//! zygotes and query workers; the spawner and the server no sooner than other processes of the
//! host.
//!
//! Invariant: no sandbox lowers its own score. Functions have a read-only `/proc`. A zygote has a
//! writable one, but the kernel remembers the value set by a process with `CAP_SYS_RESOURCE`, and
//! only such a process can set a lower one.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, openat};

use crate::spec::SyscallPolicy;

/// The `oom_score_adj` of a zygote, whose children end with it, in thousandths of the machine's
/// memory.
pub(in crate::spawner) const ZYGOTE: &str = "500";
/// The `oom_score_adj` of a query worker, whose end fails the query.
const WORKER: &str = "500";
/// The `oom_score_adj` of a function.
pub(crate) const FUNCTION: &str = "800";

const FILE: &str = "self/oom_score_adj";

/// The score of a program.
pub(in crate::spawner) fn of(policy: SyscallPolicy) -> &'static str {
    match policy {
        SyscallPolicy::Function => FUNCTION,
        SyscallPolicy::Worker => WORKER,
        SyscallPolicy::Zygote => ZYGOTE,
    }
}

/// Sets the score of this process. `proc` is a `/proc` that shows this process.
pub(super) fn set(proc: &OwnedFd, score: &str) -> io::Result<()> {
    let file = openat(proc, FILE, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, score.as_bytes())?;
    Ok(())
}

/// Lets a process that is made in `work` inherit the score: a process in its own user namespace
/// could undo a score that it had set itself.
pub(in crate::spawner) fn inherited<T>(
    proc: &OwnedFd,
    score: &str,
    work: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let own = get(proc)?;
    set(proc, score)?;
    let done = work();
    set(proc, &own).and(done)
}

fn get(proc: &OwnedFd) -> io::Result<String> {
    let file = openat(proc, FILE, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut buffer = [0; 16];
    let length = rustix::io::read(file, &mut buffer)?;
    Ok(String::from_utf8_lossy(&buffer[..length]).trim().to_owned())
}
