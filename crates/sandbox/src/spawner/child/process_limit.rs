//! The limit of processes of a sandbox that has no control group: a process sets it for itself, and
//! cannot raise it again.
//!
//! The kernel counts processes for each user of each user namespace. Every program, and every child of
//! a zygote, has a user namespace of its own, so the limit is that of one sandbox.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use snowmelt_kernel::rootless;

use crate::disabled_defences::{Defence, is_disabled};
use crate::spec::Limits;

/// The greatest number of processes and threads; `None` where the control group limits them.
pub(in crate::spawner) fn of(limits: &Limits) -> Option<u64> {
    let is_needed = rootless::entered().is_some() && !is_disabled(Defence::ControlGroup);
    is_needed.then_some(limits.pids.into())
}

/// Sets the limit of this process, and of those that it makes.
pub(super) fn set(processes: u64) -> io::Result<()> {
    // A process cannot raise a limit above its own maximum.
    let most = getrlimit(Resource::Nproc).maximum.map_or(processes, |most| most.min(processes));
    Ok(setrlimit(Resource::Nproc, Rlimit { current: Some(most), maximum: Some(most) })?)
}
