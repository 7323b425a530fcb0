//! The user of a program: a unique id of the host, in its own user namespace that maps only this
//! id.
//!
//! The user namespace is created last, so that pid and mount namespaces belong to the host's user
//! namespace: even a program with every capability over its own user namespace has none over them.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, openat};
use snowmelt_kernel::namespace::{flags, unshare};
use snowmelt_kernel::process;
use snowmelt_kernel::rootless::{self, NamespaceIds};

use crate::disabled_defences::{Defence, is_disabled};
use crate::fault::{StepFault, doing};

/// Makes this process the user `id` of the host, and enters new namespaces in which that user is
/// `user` and `group`. `proc` is the spawner's `/proc`: the process's own is read-only.
pub(super) fn take(proc: &OwnedFd, id: u32, user: u32, group: u32) -> Result<(), StepFault> {
    let groups = is_disabled(Defence::Groups).then(rustix::process::getgroups);
    match id {
        // The user who runs the platform: there is no other id, and groups cannot be dropped.
        0 => doing("keep the user", process::keep_for_own_namespace())?,
        _ => doing("change the user", process::become_user_with_privileges(id, id))?,
    }
    if let Some(groups) = groups {
        let kept = groups.and_then(|groups| rustix::thread::set_thread_groups(&groups));
        doing("keep the groups", kept.map_err(Into::into))?;
    }
    // After the change of the user: the namespace belongs to the user that makes it.
    doing("leave the user namespace", unshare(flags::USER | flags::CGROUP))?;
    // Before `gid_map`: without a capability over the host's groups the kernel wants it so.
    doing("write setgroups", write(proc, "self/setgroups", "deny"))?;
    doing("write uid_map", write(proc, "self/uid_map", &format!("{user} {id} 1")))?;
    doing("write gid_map", write(proc, "self/gid_map", &format!("{group} {id} 1")))
}

/// Becomes user and group 0 of this process's user namespace, without other groups where the
/// namespace allows that.
pub(super) fn become_root_inside() -> io::Result<()> {
    match rootless::entered() {
        Some(NamespaceIds::Own) => process::become_user_with_its_groups(0, 0),
        Some(NamespaceIds::Subordinate(_)) | None => process::become_user(0, 0),
    }
}

fn write(proc: &OwnedFd, path: &str, text: &str) -> io::Result<()> {
    let file = openat(proc, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, text.as_bytes())?;
    Ok(())
}
