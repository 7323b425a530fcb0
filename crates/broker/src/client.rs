//! The server's handle of its broker.
//!
//! Invariant: a process has at most one broker, because it has one user; requests that are answered
//! are sent one after another.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use snowmelt_kernel::packet;
use snowmelt_sandbox::Privileges;

use crate::message::{
    ANSWER_BYTES, BrokerSetup, Operation, StartedDaemon, StartedProgram, outcome,
};

/// How long the broker may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the broker may take for a request: a clean-up waits for processes to end.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a file process may take to take the rights of its user.
const FILES_TIMEOUT: Duration = Duration::from_secs(10);

static INSTALLED: OnceLock<Broker> = OnceLock::new();

/// A handle of the broker of this process.
#[derive(Debug)]
pub struct Broker {
    socket: OwnedFd,
    // Held from a request to its answer.
    turn: Mutex<()>,
}

/// A broker that has started.
#[derive(Debug)]
pub struct BrokerProcess {
    broker: Broker,
    pidfd: OwnedFd,
}

impl BrokerProcess {
    /// Starts a broker while this process is root. `known` are processes that it may kill besides
    /// those of sandboxes. Blocks.
    ///
    /// # Errors
    /// The error of the program that does not start, or does not answer within 10 s.
    pub fn start(
        command: &[OsString],
        setup: &BrokerSetup,
        known: &[BorrowedFd<'_>],
    ) -> io::Result<Self> {
        let (ours, theirs) = packet::pair()?;
        let program = command.first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut started = Command::new(program);
        started.args(&command[1..]).current_dir("/").stdin(Stdio::from(theirs));
        let mut child = started.stdout(Stdio::null()).spawn()?;
        // The command has the broker's end, and with it open the end of the broker is not seen.
        drop(started);
        let ready = || {
            let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
            packet::send(&ours, &serde_json::to_vec(setup)?, known)?;
            receive(&ours, START_TIMEOUT)?;
            Ok(pidfd)
        };
        match ready() {
            Ok(pidfd) => {
                Ok(Self { broker: Broker { socket: ours, turn: Mutex::default() }, pidfd })
            }
            Err(error) => {
                drop(child.kill());
                drop(child.wait());
                Err(error)
            }
        }
    }

    /// Makes this broker the one of the process, and of its sandboxes. Returns the pidfd, which is
    /// readable once the broker has ended.
    ///
    /// # Errors
    /// `AlreadyExists` if the process has a broker.
    pub fn install(self) -> io::Result<OwnedFd> {
        INSTALLED.set(self.broker).map_err(|_| io::ErrorKind::AlreadyExists)?;
        snowmelt_sandbox::delegate(Box::new(Installed));
        Ok(self.pidfd)
    }
}

impl Broker {
    /// Returns the broker of this process; `None` where the process has the rights itself.
    pub fn installed() -> Option<&'static Self> {
        INSTALLED.get()
    }

    /// Starts a daemon with this standard input. Returns its pidfd.
    ///
    /// # Errors
    /// The error of the start.
    pub fn start_daemon(
        &self,
        daemon: StartedDaemon,
        input: BorrowedFd<'_>,
    ) -> io::Result<OwnedFd> {
        self.start(StartedProgram::Daemon(daemon), input)
    }

    fn start(&self, program: StartedProgram, input: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let mut fds = self.ask(Operation::Start(program), &[input])?;
        fds.pop().ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Starts a process that opens files as the user at the other end of a connection. Returns its
    /// socket. Blocks.
    ///
    /// # Errors
    /// The error of the start, and of the rights that the process cannot take.
    pub fn open_files(&self, connection: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let (ours, theirs) = packet::pair()?;
        self.ask(Operation::OpenFiles, &[theirs.as_fd(), connection])?;
        drop(theirs);
        receive(&ours, FILES_TIMEOUT)?;
        Ok(ours)
    }

    /// Kills a process of a sandbox, of the spawner or of a daemon; returns after the signal is sent.
    ///
    /// # Errors
    /// `EPERM` for any other process, `ESRCH` for one that has ended.
    pub fn kill(&self, process: BorrowedFd<'_>) -> io::Result<()> {
        self.ask(Operation::KillNow, &[process]).map(drop)
    }

    fn ask(&self, operation: Operation, fds: &[BorrowedFd<'_>]) -> io::Result<Vec<OwnedFd>> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        packet::send(&self.socket, &operation.encode(), fds)?;
        let answered = receive(&self.socket, ANSWER_TIMEOUT);
        if answered.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            // A late answer would be taken for that of the next request. The broker ends, and the
            // server with it.
            let _ = shutdown(&self.socket, Shutdown::Both);
        }
        answered
    }
}

/// Receives an answer, and the descriptors that came with it.
fn receive(socket: &OwnedFd, limit: Duration) -> io::Result<Vec<OwnedFd>> {
    if !packet::wait(socket, limit)? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut answered = [0; ANSWER_BYTES];
    let packet = packet::receive(socket, &mut answered)?;
    if packet.length == 0 {
        return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the broker has ended"));
    }
    outcome(&answered[..packet.length]).map(|()| packet.fds)
}

/// The installed broker, for sandboxes.
struct Installed;

impl Installed {
    fn broker() -> io::Result<&'static Broker> {
        Broker::installed().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Privileges for Installed {
    fn kill(&self, process: BorrowedFd<'_>, now: bool) -> io::Result<()> {
        if now {
            return Self::broker()?.kill(process);
        }
        // Not answered, so that no turn is waited for: callers hold locks.
        packet::send(&Self::broker()?.socket, &Operation::Kill.encode(), &[process])
    }

    fn start_spawner(&self, input: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        Self::broker()?.start(StartedProgram::Spawner, input)
    }

    fn clean_lane(&self, lane: u32) -> io::Result<()> {
        Self::broker()?.ask(Operation::CleanLane(lane), &[]).map(drop)
    }

    fn clean(&self) -> io::Result<()> {
        Self::broker()?.ask(Operation::Clean, &[]).map(drop)
    }
}
