//! The steps of a new process between its first instruction and the exec of its program.
//!
//! A *program* borrows the spawner's memory and does every step itself. A *zygote* is a copy of the
//! spawner, which writes its user id maps; it keeps the capabilities to set up the sandboxes of its
//! children.
//!
//! Invariant: privileges only decrease, and the order matters: mounts while it has them, then the
//! ids, then capabilities, then `no_new_privs`, then the system call filter. Of the spawner's
//! descriptors only 0 to 3 survive the exec.

mod identity;
pub(super) mod notifier;
pub(super) mod oom;
pub(super) mod process_limit;
pub(super) mod scratch;
pub(super) mod sync;
mod writable_folders;

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::process::{
    Resource, Rlimit, Signal, WaitId, WaitIdOptions, getrlimit, pidfd_send_signal, setrlimit,
    waitid,
};
use snowmelt_kernel::clone::Cloned;
use snowmelt_kernel::execute::ExecProgram;
use snowmelt_kernel::mount::{self, Attributes};
use snowmelt_kernel::namespace::{flags, unshare};
use snowmelt_kernel::{fds, landlock, memory, notify, process, seccomp};

use crate::disabled_defences::{Defence, is_disabled};
use crate::fault::{StepFault, doing};
use crate::namespaces::{MASKED, NEW_ROOT, Namespaces};
use crate::spec::{CHANNEL_FD, SandboxSpec};
use notifier::NotifierSetup;

/// Returns the files of [`MASKED`] that this kernel has, according to a fresh `/proc`: the host's
/// may hide some.
pub(super) fn masked(namespaces: &Namespaces) -> io::Result<Vec<&'static str>> {
    let is_there = |name: &&str| Path::new("/proc").join(name).exists();
    namespaces.in_zygote_template(|| Ok(MASKED.into_iter().filter(is_there).collect()))
}

/// The capabilities of a zygote: SYS_ADMIN and SYS_CHROOT for the namespaces of its children,
/// SETUID and SETGID for their ids.
pub(crate) const ZYGOTE_CAPABILITIES: [u32; 4] = [21, 18, 7, 6];

/// The capabilities of a zygote whose children have its own id: also SETFCAP, without which the
/// kernel lets nobody map id 0 of a user namespace in one below it.
pub(crate) const ID_SHARING_CAPABILITIES: [u32; 5] = [21, 18, 7, 6, SETFCAP];

/// The number of the capability that a zygote has only if its children have its own id.
pub(crate) const SETFCAP: u32 = 31;

/// The umask of sandboxes: files are made without write access for others.
pub(crate) const UMASK: u32 = 0o022;

/// The inputs of the child, prepared by the spawner.
pub(super) struct Child<'a> {
    /// The files through which the child enters its control group.
    pub entry_fds: &'a [OwnedFd],
    pub scratch: &'a OwnedFd,
    /// The file that becomes descriptor 0.
    pub null: &'a OwnedFd,
    /// The socket that becomes descriptor 3.
    pub channel: &'a OwnedFd,
    /// The pipe that becomes descriptors 1 and 2.
    pub log: &'a OwnedFd,
    /// The spawner's own pidfd.
    pub spawner: &'a OwnedFd,
    pub filter: &'a seccomp::FilterProgram,
    /// The files of `/proc` to cover; see [`masked`].
    pub masked: &'a [&'static str],
    pub open_files: u64,
    /// The limit of processes that the child sets for itself; `None` where its control group has it.
    pub processes: Option<u64>,
    /// The child's working directory, an absolute path inside the sandbox.
    pub working_folder: &'a Path,
    /// The folders of the root in which the child may write.
    pub writable: &'a [PathBuf],
    /// Whether the child may have transparent huge pages from the start.
    pub huge_pages: bool,
    /// The address notifier with the other end of the spawner's socket pair. `None` if the network
    /// has no notifier.
    pub notifier: Option<(&'a NotifierSetup, &'a OwnedFd)>,
    pub program: &'a ExecProgram,
    /// The path of the program, for error messages.
    pub path: &'a str,
    pub kind: ChildKind<'a>,
}

/// The differences between a program and a zygote.
pub(super) enum ChildKind<'a> {
    /// A program. It starts in its root and takes the user id `id` of the host, which inside is the
    /// user and group `inside`; `proc` is the spawner's `/proc`. For `score` see [`oom`].
    Program { id: u32, inside: (u32, u32), proc: &'a OwnedFd, score: &'a str },
    /// A zygote. It attaches its root, and reads "go" from `sync` when its id maps are written.
    /// `shares_id`: its children have its own id of the host.
    Zygote { root: &'a OwnedFd, sync: &'a OwnedFd, shares_id: bool },
}

impl Child<'_> {
    /// Turns this process into the program. Returns only if a step fails.
    pub fn run(&self) -> StepFault {
        let Err(fault) = self.become_program();
        fault
    }

    fn become_program(&self) -> Result<Infallible, StepFault> {
        // First, so that all memory and processes of the following steps count to the sandbox.
        doing("enter the control group", self.enter_group())?;
        let kept = match self.kind {
            ChildKind::Program { id, inside: (user, group), proc, score } => {
                doing("attach the scratch", self.attach_scratch())?;
                let attached = writable_folders::attach(self.writable, id);
                attached.map_err(|(step, source)| StepFault { step, source })?;
                doing("mount /proc", self.mount_proc())?;
                // While it has CAP_SYS_RESOURCE: the kernel lets no process without it set a lower
                // score later.
                doing("set the OOM score", oom::set(proc, score))?;
                if !is_disabled(Defence::User) {
                    identity::take(proc, id, user, group)?;
                }
                &[][..]
            }
            ChildKind::Zygote { root, sync, shares_id } => {
                self.enter_root(root)?;
                // It has a copy of each socket of the spawner. If it waited for a dead one, neither
                // it nor the server would ever read an end of file.
                doing("set the parent-death signal", self.tie_to_spawner())?;
                // The spawner writes the id maps meanwhile; without them there is no user 0 to
                // become.
                doing("wait for the spawner", sync::wait_for_go(sync))?;
                doing("leave the control group namespace", unshare(flags::CGROUP))?;
                doing("change the user", identity::become_root_inside())?;
                doing("limit the kernel objects of its user", deny_kernel_objects())?;
                if shares_id { &ID_SHARING_CAPABILITIES[..] } else { &ZYGOTE_CAPABILITIES[..] }
            }
        };
        // The spawner ignores interrupts of the terminal, and an exec passes ignored signals on.
        doing("reset signals", process::reset_signals(&process::INTERRUPTS))?;
        self.drop_privileges(kept)?;
        doing("place the descriptors", self.place_descriptors())?;
        doing("enter the working folder", self.enter_working_folder())?;
        if let Some((notifier, sync)) = self.notifier {
            doing("set up the address notifier", hand_over(notifier, sync))?;
        }
        // Only now: until it executes it has the spawner's descriptors, which may be more than the
        // function's own limit, and could open no other.
        doing("set the limits", self.set_limits())?;
        self.choose_huge_pages();
        if !is_disabled(Defence::Seccomp) {
            doing("install the system call policy", self.filter.install())?;
        }
        let error = self.program.execute();
        Err(StepFault { step: format!("execute {}", self.path), source: error })
    }

    fn enter_group(&self) -> io::Result<()> {
        self.entry_fds.iter().try_for_each(|file| rustix::io::write(file, b"0").map(drop))?;
        Ok(())
    }

    fn attach_scratch(&self) -> io::Result<()> {
        mount::attach_at(self.scratch, CWD, Path::new("/tmp"))
    }

    /// Attaches root, scratch and `/proc`, and detaches everything else.
    fn enter_root(&self, root: &OwnedFd) -> Result<(), StepFault> {
        doing("attach the root", mount::attach_at(root, CWD, Path::new(NEW_ROOT)))?;
        let attach = mount::attach_at(self.scratch, root, Path::new("tmp"));
        doing("attach the scratch", attach)?;
        let proc = mount::fresh("proc", &[], proc_attributes(true))
            .and_then(|proc| mount::attach_at(proc, root, Path::new("proc")));
        doing("mount /proc", proc)?;
        doing("enter the root", mount::pivot(root))?;
        doing("mask /proc", mask(self.masked))
    }

    fn mount_proc(&self) -> io::Result<()> {
        let proc = mount::fresh("proc", &[], proc_attributes(false))?;
        mount::attach_at(&proc, CWD, Path::new("/proc"))?;
        mask(self.masked)
    }

    /// Sets whether the program may have huge pages. The setting belongs to the memory, which a
    /// program borrows: so each program sets its own, and does not keep that of the program before
    /// it. A kernel without the setting has no huge pages.
    fn choose_huge_pages(&self) {
        _ = memory::set_huge_pages(self.huge_pages);
    }

    fn set_limits(&self) -> io::Result<()> {
        let at = |limit, most| Rlimit { current: Some(limit), maximum: most };
        // A process cannot raise a limit above its own maximum.
        let most = getrlimit(Resource::Nofile).maximum;
        let files = self.open_files.min(most.unwrap_or(u64::MAX));
        // The children of a zygote have their own limits, which may be higher.
        let is_zygote = matches!(self.kind, ChildKind::Zygote { .. });
        let most = if is_zygote { most } else { Some(files) };
        if !is_disabled(Defence::OpenFiles) {
            setrlimit(Resource::Nofile, at(files, most))?;
        }
        rustix::process::umask(Mode::from_raw_mode(UMASK));
        self.processes.map_or(Ok(()), process_limit::set)
    }

    /// Enters the working directory. An image may name any path, and descriptors of the spawner are
    /// still open: a link in `/proc/self/fd` would lead to folders of the host (CVE-2024-21626).
    fn enter_working_folder(&self) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_MAGICLINKS;
        let folder = openat2(CWD, self.working_folder, flags, Mode::empty(), resolve)?;
        Ok(rustix::process::fchdir(&folder)?)
    }

    fn drop_privileges(&self, kept: &[u32]) -> Result<(), StepFault> {
        if !is_disabled(Defence::Capabilities) {
            doing("drop capabilities", process::keep_only_capabilities(kept))?;
        }
        if !is_disabled(Defence::NoNewPrivileges) {
            let no_more = rustix::thread::set_no_new_privs(true);
            doing("renounce new privileges", no_more.map_err(Into::into))?;
        }
        if !is_disabled(Defence::Landlock) {
            // After `no_new_privs`, without which the kernel asks for a capability.
            doing("confine it by Landlock", self.confine())?;
        }
        doing("set the parent-death signal", self.tie_to_spawner())
    }

    /// Restricts file access by Landlock, a second barrier behind the mounts. A zygote gets only
    /// the limits on sockets and signals, as it must still attach the mounts of its children, which
    /// confine themselves.
    fn confine(&self) -> io::Result<()> {
        if matches!(self.kind, ChildKind::Zygote { .. }) {
            return landlock::scope();
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |path: &Path| rustix::fs::open(path, flags, Mode::empty());
        let folders =
            [Path::new("/tmp")].into_iter().chain(self.writable.iter().map(PathBuf::as_path));
        let writable = folders.map(open).collect::<Result<Vec<_>, _>>()?;
        let writable: Vec<_> = writable.iter().map(AsFd::as_fd).collect();
        landlock::confine(&writable, open(Path::new("/dev"))?.as_fd())
    }

    /// Has the kernel kill this process when the spawner dies. The kernel clears this setting when
    /// ids or capabilities change, so it is set after those steps; a spawner that died before is
    /// detected by its pidfd.
    fn tie_to_spawner(&self) -> io::Result<()> {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut watched = [PollFd::new(self.spawner, PollFlags::IN)];
        if poll(&mut watched, Some(&now))? > 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    }

    /// Puts the sandbox's descriptors in their places and closes all others: immediately, or by
    /// exec for a zygote, which must be able to report a fault.
    fn place_descriptors(&self) -> io::Result<()> {
        // Copies above the targets first, so that no placement closes a source.
        let above = |source: BorrowedFd<'_>| {
            let high = source.as_raw_fd() > CHANNEL_FD;
            (!high).then(|| rustix::io::fcntl_dupfd_cloexec(source, 10)).transpose()
        };
        let null = above(self.null.as_fd())?;
        let log = above(self.log.as_fd())?;
        let channel = above(self.channel.as_fd())?;
        if !is_disabled(Defence::Descriptors) {
            fds::close_on_exec_from(0)?;
        }
        fds::duplicate_to(null.as_ref().unwrap_or(self.null).as_fd(), 0)?;
        let log = log.as_ref().unwrap_or(self.log).as_fd();
        fds::duplicate_to(log, 1)?;
        fds::duplicate_to(log, 2)?;
        fds::duplicate_to(channel.as_ref().unwrap_or(self.channel).as_fd(), CHANNEL_FD)
    }
}

/// Converts command and environment into the kernel's form.
pub(super) fn prepare(spec: &SandboxSpec) -> Result<ExecProgram, StepFault> {
    let program = ExecProgram::new(&spec.command, &spec.env);
    doing("take the command", program.map_err(|error| io::Error::other(error.to_string())))
}

/// Kills and reaps a child that could not be released.
pub(super) fn kill_and_reap(process: &Cloned) {
    // If it has ended, the wait returns immediately.
    let _ = pidfd_send_signal(&process.pidfd, Signal::KILL);
    let id = WaitId::PidFd(process.pidfd.as_fd());
    let _ = waitid(id, WaitIdOptions::EXITED);
}

/// The mount attributes of a sandbox's `/proc`. The children of a zygote write their id maps
/// through the zygote's `/proc`.
pub(super) fn proc_attributes(is_zygote: bool) -> Attributes {
    let mut attributes = mount::inert() | Attributes::MOUNT_ATTR_NOEXEC;
    let read_only = !is_zygote && !is_disabled(Defence::ReadOnlyProc);
    attributes.set(Attributes::MOUNT_ATTR_RDONLY, read_only);
    attributes
}

/// Covers these files of `/proc`; see [`masked`].
pub(super) fn mask(masked: &[&str]) -> io::Result<()> {
    masked
        .iter()
        .filter(|_| !is_disabled(Defence::MaskedProc))
        .try_for_each(|name| mount::bind(Path::new("/dev/null"), &Path::new("/proc").join(name)))
}

/// Sets the limits on kernel objects to 0 in this process's user namespace and those below. No
/// function needs such an object, and the host allows few per user. Not every kernel has every
/// kind.
fn deny_kernel_objects() -> io::Result<()> {
    const KINDS: [&str; 7] = [
        "fanotify_groups",
        "fanotify_marks",
        "inotify_instances",
        "inotify_watches",
        "ipc_namespaces",
        "time_namespaces",
        "uts_namespaces",
    ];
    KINDS.iter().filter(|_| !is_disabled(Defence::OwnCounts)).try_for_each(|kind| {
        match std::fs::write(format!("/proc/sys/user/max_{kind}"), "0") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            written => written,
        }
    })
}

/// Installs the filter and sends its listener through the handover descriptor, which must stay open
/// while the limit of descriptors no longer allows its number.
fn hand_over(notifier: &NotifierSetup, sync: &OwnedFd) -> io::Result<()> {
    let handover_fd = u64::from(notifier.handover_fd);
    let limit = |files| Rlimit { current: Some(files), maximum: Some(files) };
    setrlimit(Resource::Nofile, limit(handover_fd + 1))?;
    let through = fds::copy_at(sync.as_fd(), notifier.handover_fd as RawFd)?;
    setrlimit(Resource::Nofile, limit(handover_fd))?;
    let listener = notify::install(&notifier.filter)?;
    sync::send_listener(&through, &listener)
}
