//! The mounts of a zygote's child, which the spawner attaches from outside.
//!
//! Zygotes and their children have run code of users, so their filter allows no call that mounts. A
//! child enters namespaces of its own and reports its process. Then the spawner attaches the
//! child's mounts in the child's mount namespace, and lets it continue.
//!
//! Invariant: paths are resolved with the root of the child's mount namespace, which nobody but the
//! spawner can change.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use snowmelt_kernel::mount;

use super::Service;
use super::record::{Mounts, StartPhase};
use crate::fault::{StepFault, doing};
use crate::spawner::child;
use crate::spawner::zygote::protocol::SandboxToken;

impl Service {
    /// Attaches the mounts of a child that has reported its process, once.
    pub(super) fn attach_mounts(&mut self, token: SandboxToken) -> Result<(), StepFault> {
        let Some(record) = self.records.get_mut(&token) else { return Ok(()) };
        let (StartPhase::Starting(starting), Some(process)) = (&mut record.phase, &record.pidfd)
        else {
            return Ok(());
        };
        // Taken out, so that a child which reports twice gets them once.
        let Some(mounts) = starting.mounts.take() else { return Ok(()) };
        let attributes = child::proc_attributes(mounts.root.is_some());
        let stack = &mut self.stack;
        let proc = self.namespaces.proc_of(record.pid, process.as_fd(), attributes, stack);
        let proc = doing("make /proc", proc)?;
        let attached = self
            .namespaces
            .in_mount_namespace(process.as_fd(), || attach(&mounts, &proc, &self.masked));
        doing("attach the mounts of the child", attached)
    }
}

fn attach(mounts: &Mounts, proc: &OwnedFd, masked: &[&str]) -> io::Result<()> {
    match &mounts.root {
        // A handler has entered its root. The scratch first: until then no /proc is below the
        // root, whose links could lead out of it.
        None => {
            mount::attach_at(&mounts.scratch, CWD, Path::new("/tmp"))?;
            mount::attach_at(proc, CWD, Path::new("/proc"))?;
        }
        // A zygote has still the root of the one above.
        Some(root) => {
            mount::attach_at(root, CWD, Path::new("/tmp"))?;
            mount::attach_at(&mounts.scratch, root, Path::new("tmp"))?;
            mount::attach_at(proc, root, Path::new("proc"))?;
            mount::pivot(root)?;
        }
    }
    child::mask(masked)
}
