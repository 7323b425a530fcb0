//! The namespaces in which the spawner works and from which sandboxes begin.
//!
//! The *workshop* is a private copy of the host's mounts, in which roots are put together. The
//! *stage* holds nothing but an empty folder and a `/proc`: a sandbox begins with a copy of that,
//! so it costs the same however many mounts the host has, and sees the host's tree at no time.
//! All sandboxes share one empty network namespace.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::fs::Mode;
use snowmelt_kernel::mount::{self, Attributes};
use snowmelt_kernel::namespace::{flags, join, unshare};
use snowmelt_kernel::process::{Cloned, clone_into};

use crate::root::{Fault, doing};
use crate::spec::Network;

/// Where a sandbox that begins attaches its root.
pub(super) const NEW_ROOT: &str = "/root";

/// The namespaces by their descriptors; the spawner itself is in the workshop.
pub(super) struct Stage {
    workshop: OwnedFd,
    stage: OwnedFd,
    empty_network: OwnedFd,
    host_network: OwnedFd,
}

impl Stage {
    /// Leaves the host's namespaces; `folder` is an empty folder to mount on.
    pub fn enter(folder: &Path) -> Result<Self, Fault> {
        let host_network = current("net")?;
        let leave = unshare(flags::MOUNT | flags::NETWORK);
        doing("leave the host's mount and network namespaces", leave)?;
        doing("make the mounts private", mount::make_private())?;
        let workshop = current("mnt")?;
        doing("make a second mount namespace", unshare(flags::MOUNT))?;
        doing("empty the second mount namespace", empty(folder))?;
        let stage = current("mnt")?;
        doing("go back to the first mount namespace", join(&workshop, flags::MOUNT))?;
        Ok(Self { workshop, stage, empty_network: current("net")?, host_network })
    }

    /// Clones a process that begins on the stage; see [`clone_into`].
    pub fn clone(
        &self,
        namespaces: u64,
        network: Network,
        cgroup: Option<BorrowedFd<'_>>,
        child: impl FnOnce() -> i32,
    ) -> io::Result<Cloned> {
        let _back = self.go(network)?;
        clone_into(namespaces, cgroup, child)
    }

    fn go(&self, network: Network) -> io::Result<Back<'_>> {
        let back = Back { stage: self, network };
        join(&self.stage, flags::MOUNT)?;
        if network == Network::Host {
            join(&self.host_network, flags::NETWORK)?;
        }
        Ok(back)
    }
}

/// Goes back to the workshop when dropped.
struct Back<'a> {
    stage: &'a Stage,
    network: Network,
}

impl Drop for Back<'_> {
    fn drop(&mut self) {
        let mut joined = join(&self.stage.workshop, flags::MOUNT);
        if self.network == Network::Host {
            joined = joined.and(join(&self.stage.empty_network, flags::NETWORK));
        }
        if let Err(error) = joined {
            // In the wrong network namespace the next sandbox would reach the host's network.
            // Nothing can be mended here; the server cleans up after us.
            eprintln!("snowmelt spawner: cannot go back to its namespaces: {error}");
            std::process::abort();
        }
    }
}

fn current(kind: &str) -> Result<OwnedFd, Fault> {
    let path = format!("/proc/self/ns/{kind}");
    doing(format!("open {path}"), File::open(&path).map(OwnedFd::from))
}

fn empty(folder: &Path) -> io::Result<()> {
    let top = mount::fresh("tmpfs", &[("size", "64k"), ("mode", "755")], Attributes::empty())?;
    mount::attach_at(&top, CWD, folder)?;
    for name in [Path::new("root"), Path::new("proc")] {
        rustix::fs::mkdirat(&top, name, Mode::from_raw_mode(0o755))?;
    }
    // The kernel lets a sandbox mount its own /proc only where it sees a whole one already.
    let attributes = Attributes::MOUNT_ATTR_NOSUID
        | Attributes::MOUNT_ATTR_NODEV
        | Attributes::MOUNT_ATTR_NOEXEC;
    let proc = mount::fresh("proc", &[], attributes)?;
    mount::attach_at(proc, &top, Path::new("proc"))?;
    mount::pivot(top.as_fd())?;
    mount::set_attributes_of(&top, mount::inert())
}
