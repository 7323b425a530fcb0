//! The namespaces in which the spawner works and from which sandboxes start.
//!
//! The *assembly* namespace is a private copy of the host's mounts, in which roots are assembled.
//! The *zygote template* is a mount namespace with only an empty folder and a `/proc`. A program
//! starts in a copy of its root's own template, a zygote in a copy of the zygote template: so both
//! cost the same however many mounts the host has, and never see the host's tree. Programs of equal
//! roots share an empty network namespace, and a zygote shares one with its children, so abstract
//! socket names are not visible to other tenants. All share one UTS and one IPC namespace (host
//! names, System V objects), which the system call policies deny.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{WaitId, WaitIdOptions};
use snowmelt_kernel::bpf::Map;
use snowmelt_kernel::clone::{Cloned, clone_into};
use snowmelt_kernel::mount::{self, Attributes};
use snowmelt_kernel::namespace::{flags, join, unshare};
use snowmelt_kernel::vfork::{Stack, clone_vfork};
use snowmelt_kernel::{packet, rootless};

use crate::disabled_defences::{Defence, is_disabled};
use crate::fault::{StepFault, doing};
use crate::spec::{Network, NetworkId};

/// The folder where a starting zygote attaches its root.
pub(crate) const NEW_ROOT: &str = "/root";

/// The files of `/proc` about the whole machine that a sandbox has no use for: its memory, boot
/// parameters, build configuration, activity and identity. Each costs a mount in every sandbox.
pub(crate) const MASKED: [&str; 7] = [
    "cmdline",
    "config.gz",
    "interrupts",
    "kcore",
    "keys",
    "sys/kernel/random/boot_id",
    "timer_list",
];

/// The new namespaces of each sandbox.
pub const NAMESPACES: u64 = flags::USER | flags::PID | flags::MOUNT;

/// A network for sandboxes.
pub(crate) struct SandboxNetwork {
    /// The namespace.
    pub namespace: OwnedFd,
    /// Whether the sandboxes' calls that name an address wait for an answer.
    pub has_notifier: bool,
    /// The table of the kernel with the entries of the network's programs, by control group.
    pub table: Option<Map>,
}

/// The namespaces by their descriptors; the spawner itself is in the assembly namespace.
pub(crate) struct Namespaces {
    assembly: OwnedFd,
    zygote_template: OwnedFd,
    /// The empty network namespace of processes that never use a network; that of the spawner
    /// itself, unless it stays in that of the host.
    shared_network: OwnedFd,
    host_network: OwnedFd,
    /// Whether the spawner stays in the host's network namespace: with rights over its own user
    /// namespace only, it could not return there. A program then enters its network by itself, and a
    /// zygote has an empty one from its start.
    stays_in_host_network: bool,
    /// The spawner's `/proc`, for processes that see another one or none.
    proc: OwnedFd,
    /// The spawner's pid namespace.
    pids: OwnedFd,
    /// Whether this kernel can make a `/proc` of a pid namespace that is named (Linux 6.18).
    names_pids_of_proc: bool,
    /// The network namespaces of jobs.
    pub networks: BTreeMap<NetworkId, SandboxNetwork>,
}

impl Namespaces {
    /// Leaves the host's namespaces; `folder` is an empty folder to mount on.
    pub fn enter(folder: &Path) -> Result<Self, StepFault> {
        // Before it is left: /proc/self/ns shows only the namespaces of the present.
        let host_network = current("net")?;
        let stays_in_host_network = rootless::entered().is_some();
        let network = if stays_in_host_network { 0 } else { flags::NETWORK };
        let kinds = flags::MOUNT | network | flags::UTS | flags::IPC;
        doing("leave the host's namespaces", unshare(kinds))?;
        let named = rustix::system::sethostname(b"snowmelt");
        doing("set the host name", named.map_err(Into::into))?;
        // Before the first mount: a shared tree would pass it on to the host.
        doing("make the mounts private", mount::make_private())?;
        // A /proc that shows process ids of the new pid namespace.
        let own = mount::fresh("proc", &[], proc_attributes());
        let own = own.and_then(|proc| mount::attach_at(proc, CWD, Path::new("/proc")));
        doing("mount /proc", own)?;
        let proc = doing("open /proc", File::open("/proc").map(OwnedFd::from))?;
        let pids = current("pid")?;
        // Tried, and not concluded from the version: distributions carry the feature back.
        let names_pids_of_proc = mount::proc_of(&pids, proc_attributes()).is_ok();
        let assembly = current("mnt")?;
        // A copy of the assembly namespace, which is emptied then: unshare copies all mounts that
        // there are.
        doing("make a second mount namespace", unshare(flags::MOUNT))?;
        doing("empty the second mount namespace", empty(folder))?;
        let zygote_template = current("mnt")?;
        doing("return to the first mount namespace", join(&assembly, flags::MOUNT))?;
        let shared_network = match stays_in_host_network {
            true => doing("make an empty network namespace", network_by_process(&proc))?,
            false => current("net")?,
        };
        Ok(Self {
            assembly,
            zygote_template,
            shared_network,
            host_network,
            stays_in_host_network,
            proc,
            pids,
            names_pids_of_proc,
            networks: BTreeMap::new(),
        })
    }

    /// The spawner's `/proc`.
    pub fn proc(&self) -> &OwnedFd {
        &self.proc
    }

    /// Runs `work` in the zygote template.
    pub fn in_zygote_template<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.in_mount_namespace(self.zygote_template.as_fd(), work)
    }

    /// Makes a mount namespace whose root is the detached `tree`, without other mounts.
    pub fn namespace_of(&self, tree: OwnedFd) -> io::Result<OwnedFd> {
        self.in_zygote_template(|| self.enter_namespace_of(&tree))
    }

    /// Makes a mount namespace whose root is the detached `tree`, in the user namespace of another
    /// process. That process has capabilities there, and may copy only such a namespace.
    pub fn namespace_in_users_of(
        &self,
        process: BorrowedFd<'_>,
        tree: &OwnedFd,
        stack: &mut Stack,
    ) -> io::Result<OwnedFd> {
        self.in_zygote_template(|| {
            made_by_process(stack, &mut || {
                join(process, flags::USER)?;
                self.enter_namespace_of(tree)
            })
        })
    }

    fn enter_namespace_of(&self, tree: &OwnedFd) -> io::Result<OwnedFd> {
        unshare(flags::MOUNT)?;
        // A root must be a mount point that is attached in the namespace before it can be pivoted
        // to.
        mount::attach_at(tree, CWD, Path::new(NEW_ROOT))?;
        mount::pivot(tree)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(openat(&self.proc, "self/ns/mnt", flags, Mode::empty())?)
    }

    /// Makes a `/proc` of the pid namespace of another process, attached nowhere.
    pub fn proc_of(
        &self,
        pid: i32,
        process: BorrowedFd<'_>,
        attributes: Attributes,
        stack: &mut Stack,
    ) -> io::Result<OwnedFd> {
        if self.names_pids_of_proc {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let pids = openat(&self.proc, format!("{pid}/ns/pid"), flags, Mode::empty())?;
            return mount::proc_of(&pids, attributes);
        }
        // Only a process of that namespace can make it.
        join(process, flags::PID)?;
        let made = made_by_process(stack, &mut || mount::fresh("proc", &[], attributes));
        if let Err(error) = join(&self.pids, flags::PID) {
            // The next sandbox would be seen by this one.
            eprintln!("snowmelt spawner: cannot return to its pid namespace: {error}");
            std::process::abort();
        }
        made
    }

    /// Runs `work` in another mount namespace.
    pub fn in_mount_namespace<T>(
        &self,
        namespace: BorrowedFd<'_>,
        work: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let _restore = self.enter_namespaces(namespace, None)?;
        work()
    }

    /// Clones a process that starts in the zygote template; see [`clone_into`].
    pub fn clone(
        &self,
        namespaces: u64,
        network: BorrowedFd<'_>,
        cgroup: Option<BorrowedFd<'_>>,
        child: impl FnOnce() -> i32,
    ) -> io::Result<Cloned> {
        let _restore = self.enter_namespaces(self.zygote_template.as_fd(), Some(network))?;
        let own = if self.stays_in_host_network { flags::NETWORK } else { 0 };
        clone_into(namespaces | own, cgroup, child)
    }

    /// Makes a process that starts in a copy of the mount namespace `root`; see
    /// [`clone_vfork`].
    pub fn vfork(
        &self,
        root: BorrowedFd<'_>,
        network: BorrowedFd<'_>,
        cgroup: Option<BorrowedFd<'_>>,
        stack: &mut Stack,
        child: &mut dyn FnMut() -> i32,
    ) -> io::Result<Cloned> {
        let _restore = self.enter_namespaces(root, Some(network))?;
        let processes = if is_disabled(Defence::Processes) { 0 } else { flags::PID };
        let kinds = processes | flags::MOUNT;
        if !self.stays_in_host_network || self.is_host_network(network) {
            return clone_vfork(kinds, cgroup, stack, child);
        }
        let mut entered = Ok(());
        let mut run = || {
            entered = join(network, flags::NETWORK);
            // With the host's network it must not run anything.
            if entered.is_ok() { child() } else { 1 }
        };
        let made = clone_vfork(kinds, cgroup, stack, &mut run)?;
        match entered {
            Ok(()) => Ok(made),
            Err(error) => {
                rustix::process::waitid(WaitId::PidFd(made.pidfd.as_fd()), WaitIdOptions::EXITED)?;
                Err(error)
            }
        }
    }

    /// Makes an empty network namespace. It has its own abstract socket names and its own
    /// `/proc/net`.
    pub fn empty_network(&self) -> io::Result<OwnedFd> {
        if self.stays_in_host_network {
            return network_by_process(&self.proc);
        }
        let _restore = Restore { namespaces: self, network: true };
        unshare(flags::NETWORK)?;
        Ok(openat(&self.proc, "self/ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
    }

    fn is_host_network(&self, network: BorrowedFd<'_>) -> bool {
        network.as_raw_fd() == self.host_network.as_raw_fd()
    }

    /// The network namespace of processes that never use a network.
    pub fn shared_network(&self) -> io::Result<OwnedFd> {
        self.shared_network.try_clone()
    }

    /// Returns the network namespace of a sandbox; `own` if it has no network.
    pub fn network<'a>(
        &'a self,
        network: Network,
        own: BorrowedFd<'a>,
    ) -> io::Result<BorrowedFd<'a>> {
        match network {
            _ if is_disabled(Defence::Network) => Ok(self.host_network.as_fd()),
            Network::None if is_disabled(Defence::OwnNetwork) => Ok(self.shared_network.as_fd()),
            Network::None => Ok(own),
            Network::Host => Ok(self.host_network.as_fd()),
            Network::Job(id) => {
                let network = self.networks.get(&id).ok_or(io::ErrorKind::NotFound)?;
                Ok(network.namespace.as_fd())
            }
        }
    }

    fn enter_namespaces(
        &self,
        mounts: BorrowedFd<'_>,
        network: Option<BorrowedFd<'_>>,
    ) -> io::Result<Restore<'_>> {
        let network = network.filter(|_| !self.stays_in_host_network);
        // Made before the first join, so that a failure of the second one returns from the first.
        let restore = Restore { namespaces: self, network: network.is_some() };
        join(mounts, flags::MOUNT)?;
        network.map_or(Ok(()), |network| join(network, flags::NETWORK))?;
        Ok(restore)
    }
}

/// Returns to the assembly namespace when dropped.
struct Restore<'a> {
    namespaces: &'a Namespaces,
    network: bool,
}

impl Drop for Restore<'_> {
    fn drop(&mut self) {
        let mut joined = join(&self.namespaces.assembly, flags::MOUNT);
        if self.network {
            joined = joined.and(join(&self.namespaces.shared_network, flags::NETWORK));
        }
        if let Err(error) = joined {
            // In the wrong network namespace the next sandbox would reach the host's network. This
            // cannot be repaired here; the server cleans up after the abort.
            eprintln!("snowmelt spawner: cannot return to its namespaces: {error}");
            std::process::abort();
        }
    }
}

/// Runs `work` in a process of its own, which enters namespaces that this one must not enter.
/// Returns the descriptor that `work` makes.
fn made_by_process(
    stack: &mut Stack,
    work: &mut dyn FnMut() -> io::Result<OwnedFd>,
) -> io::Result<OwnedFd> {
    let (ours, theirs) = packet::pair()?;
    let mut outcome = Ok(());
    let mut run = || {
        outcome = work().and_then(|made| packet::send(&theirs, b"x", &[made.as_fd()]));
        0
    };
    // The helper shares this memory and runs until its end before this goes on, so `outcome` is set
    // then.
    let process = clone_vfork(0, None, stack, &mut run)?;
    rustix::process::waitid(WaitId::PidFd(process.pidfd.as_fd()), WaitIdOptions::EXITED)?;
    outcome?;
    // Without its last sender, the end of the stream tells that the process was killed.
    drop(theirs);
    let made = packet::receive(&ours, &mut [0; 1])?.fds.pop();
    made.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
}

/// Makes an empty network namespace in a process of its own, for a spawner that stays in its own.
fn network_by_process(proc: &OwnedFd) -> io::Result<OwnedFd> {
    made_by_process(&mut Stack::new()?, &mut || {
        unshare(flags::NETWORK)?;
        Ok(openat(proc, "self/ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
    })
}

fn current(kind: &str) -> Result<OwnedFd, StepFault> {
    let path = format!("/proc/self/ns/{kind}");
    doing(format!("open {path}"), File::open(&path).map(OwnedFd::from))
}

fn proc_attributes() -> Attributes {
    Attributes::MOUNT_ATTR_NOSUID | Attributes::MOUNT_ATTR_NODEV | Attributes::MOUNT_ATTR_NOEXEC
}

fn empty(folder: &Path) -> io::Result<()> {
    let top = mount::fresh("tmpfs", &[("size", "64k"), ("mode", "755")], Attributes::empty())?;
    mount::attach_at(&top, CWD, folder)?;
    for name in [Path::new("root"), Path::new("proc")] {
        rustix::fs::mkdirat(&top, name, Mode::from_raw_mode(0o755))?;
    }
    // The kernel lets a zygote mount its own /proc only where an uncovered one is visible.
    let proc = mount::fresh("proc", &[], proc_attributes())?;
    mount::attach_at(proc, &top, Path::new("proc"))?;
    mount::pivot(top.as_fd())?;
    // Last, because it makes the tree read-only.
    mount::set_attributes_of(&top, mount::inert())
}
