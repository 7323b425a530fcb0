//! The execution of the spawner's program: before the runtime exists, and again when the spawner
//! has died.
//!
//! The second time the server has threads and much memory. That memory is not copied: the child
//! borrows it until its exec (`posix_spawn`), and does nothing else before.
//!
//! Invariant: every start executes the same file, even if another file has its path by then: the
//! protocol between server and spawner has no version.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use snowmelt_kernel::{packet, rootless};

use super::pidfd;
use super::privileges::delegated;
use super::readiness::{self, Processes, ReadyLane};
use super::run_dir::RunDir;
use crate::message::{LONGEST_PACKET, MADE, Setup};
use crate::spec::Total;
use crate::{Error, Result};

/// The limit on the time in which the spawner sets itself up. It takes milliseconds; a program that
/// is not a spawner would never answer.
const SETUP_TIMEOUT: Duration = Duration::from_secs(10);

/// The options for starting a spawner.
#[derive(Clone, Debug)]
pub struct Options {
    /// A folder for this process only, created here (mode 0711) and removed at the end. Its parent
    /// is the folder that [`crate::sweep`] sweeps.
    pub run_dir: PathBuf,
    /// The program that calls [`crate::spawner_main`], and its arguments.
    pub spawner_command: Vec<OsString>,
    /// The parent control group of all sandboxes: `snowmelt/<instance>`.
    pub parent_cgroup: String,
    /// The limits of that control group.
    pub total: Total,
    /// The user that the server becomes after the launch; `None` if it stays root.
    pub server_user: Option<u32>,
}

/// The spawner's command.
pub(super) struct Launcher {
    options: Options,
    /// The open file of the program; `None` where the command is not an absolute path.
    program: Option<OwnedFd>,
}

/// A running spawner: its process, and our end of its control socket.
pub(super) struct Launched {
    pub pidfd: OwnedFd,
    pub socket: OwnedFd,
}

/// The process that executes the spawner's program.
enum SpawnerChild {
    Own(Child),
    /// A child of the process that starts programs of root for this one.
    Delegated(OwnedFd),
}

impl SpawnerChild {
    fn id(&self) -> u32 {
        match self {
            Self::Own(child) => child.id(),
            Self::Delegated(pidfd) => pidfd::pid_of(pidfd),
        }
    }

    fn wait(&mut self) -> io::Result<()> {
        match self {
            Self::Own(child) => child.wait().map(drop),
            Self::Delegated(pidfd) => {
                pidfd::wait(pidfd);
                Ok(())
            }
        }
    }

    /// Kills the process, which may have exited already.
    fn end(&mut self) {
        match self {
            Self::Own(child) => drop(child.kill()),
            Self::Delegated(pidfd) => drop(pidfd::kill(pidfd)),
        }
        drop(self.wait());
    }
}

impl Launched {
    /// Makes the first lane of the spawner.
    ///
    /// # Errors
    /// [`Error::Launch`] when the runtime cannot watch its socket.
    pub fn into_ready(self) -> Result<ReadyLane> {
        let command = || "the socket of the spawner".into();
        let socket = readiness::watch(self.socket);
        let socket = socket.map_err(|source| Error::Launch { command: command(), source })?;
        Ok(ReadyLane { lane: 0, pidfd: self.pidfd, socket })
    }
}

impl Launcher {
    /// Opens the program's file; errors are reported by [`Self::launch`].
    pub fn new(options: Options) -> Self {
        let program = options.spawner_command.first().map(Path::new);
        let program = program.filter(|program| program.is_absolute());
        let open = |path| open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
        Self { program: program.and_then(open), options }
    }

    /// Starts a spawner that works in `run_dir`; returns when it is set up. Blocks.
    ///
    /// # Errors
    /// [`Error::Launch`] when the program does not start, [`Error::Unsupported`] when it reports
    /// that it cannot make sandboxes here.
    pub fn launch(&self, run_dir: &RunDir) -> Result<Launched> {
        let failed = |source| Error::Launch { command: self.name(), source };
        let (ours, theirs) = packet::pair().map_err(failed)?;
        let mut child = self.start(theirs).map_err(failed)?;
        let mut made = Vec::new();
        match self.set_up(run_dir, &ours, &mut made) {
            Ok(Ok((pidfd, init))) => {
                init.into_iter().for_each(|init| run_dir.add_init(init));
                if pidfd::pid_of(&pidfd) != child.id() {
                    // It has made the lane and is about to exit.
                    child.wait().map_err(failed)?;
                }
                Ok(Launched { pidfd, socket: ours })
            }
            outcome => {
                // It may have exited already.
                child.end();
                pidfd::end_all(&made);
                // What cannot be removed now is removed before the next attempt.
                drop(run_dir.clean_lanes());
                Err(outcome.map_or_else(failed, |refused| match refused {
                    Err(reason) => Error::Unsupported { reason },
                    Ok(_) => Error::SpawnerLost,
                }))
            }
        }
    }

    /// Returns the set-up message of the spawner.
    pub fn setup(&self, run_dir: &RunDir) -> io::Result<String> {
        let Options { total, server_user, .. } = self.options;
        let parent_cgroup = self.options.parent_cgroup.clone();
        let run_dir = run_dir.path().to_owned();
        let ids = rootless::entered();
        Ok(serde_json::to_string(&Setup { run_dir, parent_cgroup, total, ids, server_user })?)
    }

    fn start(&self, input: OwnedFd) -> io::Result<SpawnerChild> {
        if let Some(privileges) = delegated() {
            return privileges.start_spawner(input.as_fd()).map(SpawnerChild::Delegated);
        }
        let mut command = Command::new(self.path());
        command.arg0(self.name()).args(self.options.spawner_command.iter().skip(1));
        command.current_dir("/").stdin(Stdio::from(input)).stdout(Stdio::null());
        command.spawn().map(SpawnerChild::Own)
    }

    fn name(&self) -> OsString {
        self.options.spawner_command.first().cloned().unwrap_or_default()
    }

    fn path(&self) -> OsString {
        let open = self.program.as_ref();
        open.map_or_else(
            || self.name(),
            |file| format!("/proc/self/fd/{}", file.as_raw_fd()).into(),
        )
    }

    /// Sends the spawner its set-up message, and waits until it is ready or reports an error.
    /// Processes that the spawner makes meanwhile are added to `made`.
    fn set_up(
        &self,
        run_dir: &RunDir,
        socket: &OwnedFd,
        made: &mut Vec<OwnedFd>,
    ) -> io::Result<std::result::Result<Processes, String>> {
        packet::send(socket, self.setup(run_dir)?.as_bytes(), &[run_dir.lock().as_fd()])?;
        let deadline = Instant::now() + SETUP_TIMEOUT;
        let mut buffer = vec![0; LONGEST_PACKET];
        loop {
            wait_for_packet(socket, deadline)?;
            let packet = packet::receive(socket, &mut buffer)?;
            if &buffer[..packet.length] != MADE {
                return readiness::ready(&packet, &buffer);
            }
            made.extend(packet.fds);
        }
    }
}

fn wait_for_packet(socket: &OwnedFd, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&left))? {
        0 => Err(io::Error::new(io::ErrorKind::TimedOut, "it did not answer")),
        _ => Ok(()),
    }
}

impl fmt::Debug for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launcher").field("options", &self.options).finish_non_exhaustive()
    }
}
