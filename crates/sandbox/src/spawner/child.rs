//! What a cloned process does between its first instruction and the exec of its program.
//!
//! Invariant: privileges only go down, and the order matters: mounts while it has them, then the
//! ids, then capabilities, then `no_new_privs`, then the system call filter, and nothing of the
//! spawner's survives the exec but descriptors 0 to 3.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use snowmelt_kernel::mount::{self, Attributes};
use snowmelt_kernel::namespace::{flags, unshare};
use snowmelt_kernel::{fds, landlock, process, seccomp};

use super::stage::NEW_ROOT;
use crate::root::{Fault, doing};
use crate::spec::CHANNEL_FD;

/// Files of `/proc` about the whole machine that a sandbox has no business with.
const MASKED: [&str; 3] = ["kcore", "keys", "timer_list"];

/// SYS_ADMIN for pid namespaces of its children, SETUID and SETGID for their ids.
const ZYGOTE_CAPABILITIES: [u32; 3] = [21, 7, 6];

/// All that the child needs, prepared by the spawner.
pub(super) struct Child<'a> {
    /// Where it enters its control group.
    pub doors: &'a [OwnedFd],
    pub root: &'a OwnedFd,
    pub scratch: &'a OwnedFd,
    /// Becomes descriptor 3.
    pub channel: &'a OwnedFd,
    /// Becomes descriptors 1 and 2.
    pub log: &'a OwnedFd,
    /// The child's end: it reads one packet, "go", and writes only if a step fails.
    pub sync: &'a OwnedFd,
    pub is_zygote: bool,
    pub filter: &'a seccomp::Program,
    pub open_files: u64,
    pub command: &'a [String],
    pub env: &'a [(String, String)],
}

impl Child<'_> {
    /// Becomes the program. Returns only if a step fails, after it has told the spawner.
    pub fn run(&self) -> i32 {
        let Err(fault) = self.become_program();
        let errno = fault.source.raw_os_error().unwrap_or(0);
        // If the spawner is gone there is nobody to tell.
        drop(super::sync::tell_fault(self.sync, &fault.step, errno));
        1
    }

    fn become_program(&self) -> Result<std::convert::Infallible, Fault> {
        doing("enter the control group", self.enter_group())?;
        self.enter_root()?;
        doing("wait for the spawner", super::sync::wait_for_go(self.sync))?;
        doing("leave the control group namespace", unshare(flags::CGROUP))?;
        let named = rustix::system::sethostname(b"snowmelt");
        doing("set the host name", named.map_err(Into::into))?;
        doing("reset signals", process::reset_signals(&process::INTERRUPTS))?;
        doing("set the limits", self.set_limits())?;
        doing("place the descriptors", self.place_descriptors())?;
        self.drop_privileges()?;
        doing("install the system call policy", self.filter.install())?;
        doing(format!("execute {}", self.program()), Err(self.exec()))
    }

    fn enter_group(&self) -> io::Result<()> {
        self.doors.iter().try_for_each(|door| rustix::io::write(door, b"0").map(drop))?;
        Ok(())
    }

    /// Attaches root, scratch and `/proc`, and lets go of everything else.
    fn enter_root(&self) -> Result<(), Fault> {
        let attach = mount::attach_at(self.root, CWD, Path::new(NEW_ROOT));
        doing("attach the root", attach)?;
        let attach = mount::attach_at(self.scratch, self.root, Path::new("tmp"));
        doing("attach the scratch", attach)?;
        doing("mount /proc", self.mount_proc())?;
        doing("enter the root", mount::pivot(self.root))
    }

    fn mount_proc(&self) -> io::Result<()> {
        let inert = mount::inert() | Attributes::MOUNT_ATTR_NOEXEC;
        // The children of a zygote write their id maps through its /proc, and may mount their
        // own only if nothing covers a part of it.
        let attributes = if self.is_zygote { inert - Attributes::MOUNT_ATTR_RDONLY } else { inert };
        let proc = mount::fresh("proc", &[], attributes)?;
        mount::attach_at(&proc, self.root, Path::new("proc"))?;
        if self.is_zygote {
            return Ok(());
        }
        for name in MASKED {
            let null = mount::copy_at(self.root, Path::new("dev/null"))?;
            match mount::attach_at(null, &proc, Path::new(name)) {
                // Not every kernel has every file.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn set_limits(&self) -> io::Result<()> {
        let at = |limit, most| Rlimit { current: Some(limit), maximum: most };
        // At 1 the kernel writes no core and, unlike at 0, hands none to the host's handler.
        setrlimit(Resource::Core, at(1, Some(1)))?;
        // More than we have ourselves cannot be given away.
        let most = getrlimit(Resource::Nofile).maximum;
        let files = self.open_files.min(most.unwrap_or(u64::MAX));
        // The children of a zygote have limits of their own, which may be higher.
        let most = if self.is_zygote { most } else { Some(files) };
        setrlimit(Resource::Nofile, at(files, most))?;
        rustix::process::umask(Mode::from_raw_mode(0o022));
        Ok(rustix::process::chdir("/tmp")?)
    }

    fn place_descriptors(&self) -> io::Result<()> {
        let null = rustix::fs::open("/dev/null", OFlags::RDONLY, Mode::empty())?;
        // Copies above the targets first, so that no placement closes a source.
        let above = |source: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(source, 10);
        let (null, log) = (above(null.as_fd())?, above(self.log.as_fd())?);
        let channel = above(self.channel.as_fd())?;
        fds::close_on_exec_from(0)?;
        fds::place(null.as_fd(), 0)?;
        fds::place(log.as_fd(), 1)?;
        fds::place(log.as_fd(), 2)?;
        fds::place(channel.as_fd(), CHANNEL_FD)
    }

    fn drop_privileges(&self) -> Result<(), Fault> {
        let (id, kept) =
            if self.is_zygote { (0, &ZYGOTE_CAPABILITIES[..]) } else { (1000, &[][..]) };
        doing("change the user", process::become_user(id, id))?;
        doing("drop capabilities", process::keep_only_capabilities(kept))?;
        let no_more = rustix::thread::set_no_new_privs(true);
        doing("renounce new privileges", no_more.map_err(Into::into))?;
        doing("cut it off from files and neighbours", self.confine())?;
        doing("tie its life to the spawner's", self.tie_to_spawner())
    }

    /// A second fence behind the mounts. A zygote must still attach the mounts of its children,
    /// who put it up for themselves.
    fn confine(&self) -> io::Result<()> {
        if self.is_zygote {
            return landlock::scope();
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |path| rustix::fs::open(path, flags, Mode::empty());
        landlock::confine(open("/tmp")?.as_fd(), open("/dev")?.as_fd())
    }

    /// Has the kernel kill it when the spawner dies. The kernel forgets this when ids change, so
    /// it comes after that; a spawner that died before is seen by its closed end.
    fn tie_to_spawner(&self) -> io::Result<()> {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut watched = [PollFd::new(self.sync, PollFlags::empty())];
        if poll(&mut watched, Some(&now))? > 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    }

    fn program(&self) -> &str {
        self.command.first().map_or("", String::as_str)
    }

    fn exec(&self) -> io::Error {
        Command::new(self.program())
            .args(self.command.iter().skip(1))
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .exec()
    }
}
