//! The broker's process: it waits for a request of eight bytes, does it, and answers.
//!
//! Invariant: the process has one thread and never waits for anything but requests and the ends of
//! children. What takes time is done by a copy of it, which answers by itself and ends.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Command, ExitCode, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, WaitOptions, pidfd_open, setrlimit, wait,
};
use snowmelt_kernel::clone::clone_into;
use snowmelt_kernel::packet::{self, Packet};
use snowmelt_kernel::{fds, process};

use crate::file_process::{self, FileService};
use crate::message::{BrokerSetup, Operation, REQUEST_BYTES, StartedProgram, answer};
use crate::targets::Targets;

/// The most bytes of the first packet.
const MAX_SETUP: usize = 16 << 10;

/// Runs a broker on standard input until the server closes its end. Must be called before the process
/// has a second thread and before it opens any file.
pub fn broker_main(files: FileService) -> ExitCode {
    match run(files) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("snowmelt broker: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(files: FileService) -> io::Result<()> {
    // Before anything is opened: what the server's parent left open must reach no program.
    fds::close_from(3)?;
    let control = io::stdin().as_fd().try_clone_to_owned()?;
    fds::duplicate_to(File::open("/dev/null")?.as_fd(), 0)?;
    let mut first = vec![0; MAX_SETUP];
    let received = packet::receive(&control, &mut first)?;
    if received.length == 0 {
        return Ok(());
    }
    let setup: BrokerSetup = serde_json::from_slice(&first[..received.length])?;
    // Fails only for a process group leader, which is not in the terminal's foreground group.
    let _ = rustix::process::setsid();
    process::ignore_signals(&process::INTERRUPTS)?;
    // With the limit 1 the kernel writes no core and starts no handler.
    setrlimit(Resource::Core, Rlimit { current: Some(1), maximum: Some(1) })?;
    let ends = process::child_ends()?;
    let targets = Targets::new(&setup.parent_cgroup, received.fds);
    let door =
        open(&setup.socket, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let mut broker = BrokerLoop { control, setup, targets, files, door, copy: None };
    broker.reply(&Ok(()), &[])?;
    broker.serve(&ends)
}

/// The remains that a copy of the broker removes.
#[derive(Clone, Copy)]
enum CleanUp {
    Lane(u32),
    All,
}

struct BrokerLoop {
    control: OwnedFd,
    setup: BrokerSetup,
    targets: Targets,
    files: FileService,
    /// The file of the server's socket.
    door: OwnedFd,
    /// The copy of this process that is to answer.
    copy: Option<i32>,
}

impl BrokerLoop {
    fn serve(&mut self, ends: &OwnedFd) -> io::Result<()> {
        loop {
            let mut ready =
                [PollFd::new(&self.control, PollFlags::IN), PollFd::new(ends, PollFlags::IN)];
            match poll(&mut ready, None) {
                Err(Errno::INTR) => continue,
                polled => polled?,
            };
            let asked = !ready[0].revents().is_empty();
            if !ready[1].revents().is_empty() {
                self.reap(ends)?;
            }
            if !asked {
                continue;
            }
            let mut request = [0; REQUEST_BYTES];
            match packet::receive(&self.control, &mut request) {
                Ok(received) if received.length == 0 => return Ok(()),
                Ok(received) => {
                    let operation = Operation::decode(&request[..received.length]);
                    self.handle(operation, received)?;
                }
                // Also one that is too long, or whose descriptors were cut: whether it is to be answered
                // cannot be known, and an answer too many would be taken for that of the next one.
                Err(error) => return Err(error),
            }
        }
    }

    fn handle(&mut self, operation: Option<Operation>, mut packet: Packet) -> io::Result<()> {
        let invalid = || Err(io::Error::from_raw_os_error(Errno::INVAL.raw_os_error()));
        match operation {
            Some(Operation::Start(program)) if packet.fds.len() == 1 => {
                let input = packet.fds.remove(0);
                match self.start(program, input) {
                    Ok(pidfd) => self.reply(&Ok(()), &[pidfd.as_fd()]),
                    Err(error) => self.reply(&Err(error), &[]),
                }
            }
            Some(Operation::OpenFiles) if packet.fds.len() == 2 => {
                let connection = packet.fds.remove(1);
                let socket = packet.fds.remove(0);
                let files = self.files;
                let door = &self.door;
                let forked =
                    clone_into(0, None, || file_process::run(socket, &connection, door, files));
                self.reply(&forked.map(drop), &[])
            }
            Some(Operation::Kill) => {
                // Mostly nobody waits for an answer: the end of the process is seen by its pidfd.
                packet.fds.iter().for_each(|process| drop(self.kill(process)));
                Ok(())
            }
            Some(Operation::KillNow) if packet.fds.len() == 1 => {
                let killed = self.kill(&packet.fds[0]);
                self.reply(&killed, &[])
            }
            Some(Operation::CleanLane(lane)) if packet.fds.is_empty() => {
                self.apart(CleanUp::Lane(lane))
            }
            Some(Operation::Clean) if packet.fds.is_empty() => self.apart(CleanUp::All),
            _ => self.reply(&invalid(), &[]),
        }
    }

    fn kill(&self, process: &OwnedFd) -> io::Result<()> {
        self.targets.kill(process.as_fd()).inspect_err(|error| {
            if error.raw_os_error() != Some(Errno::SRCH.raw_os_error()) {
                eprintln!("snowmelt broker: a process is not killed: {error}");
            }
        })
    }

    /// Does work in a copy of this process, which answers.
    fn apart(&mut self, work: CleanUp) -> io::Result<()> {
        let BrokerSetup { run_dir, parent_cgroup, .. } = &self.setup;
        let forked = clone_into(0, None, || {
            let done = match work {
                CleanUp::Lane(lane) => snowmelt_sandbox::clean_lane(parent_cgroup, lane),
                CleanUp::All => snowmelt_sandbox::clean_run_dir(run_dir, parent_cgroup),
            };
            let outcome = done.map_err(|error| {
                eprintln!("snowmelt broker: {error}");
                io::Error::other(error)
            });
            i32::from(self.reply(&outcome, &[]).is_err())
        });
        match forked {
            Ok(copy) => {
                self.copy = Some(copy.pid);
                Ok(())
            }
            Err(error) => self.reply(&Err(error), &[]),
        }
    }

    /// Reaps all children that have ended, also those that a started program left. A copy that did not
    /// answer is answered for.
    fn reap(&mut self, ends: &OwnedFd) -> io::Result<()> {
        // One signal stands for any number of ends.
        let mut read = [0; 128];
        let _ = rustix::io::read(ends, &mut read);
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if self.copy == Some(pid.as_raw_nonzero().get()) {
                self.copy = None;
                if status.exit_status() != Some(0) {
                    self.reply(&Err(Errno::IO.into()), &[])?;
                }
            }
        }
        Ok(())
    }

    fn start(&mut self, program: StartedProgram, input: OwnedFd) -> io::Result<OwnedFd> {
        let mut command = match program {
            StartedProgram::Spawner => {
                let mut command = Command::new(&self.setup.program);
                // Where and with whose ids it works is not the server's to say.
                command.args(["internal", "spawner", &self.setup.spawner]);
                command
            }
            StartedProgram::Daemon(daemon) => {
                let mut command = daemon.command(&self.setup.program);
                command.args([self.setup.user, self.setup.group].map(|number| number.to_string()));
                command
            }
        };
        command.current_dir("/").stdin(Stdio::from(input)).stdout(Stdio::null());
        let child = command.spawn()?;
        // Children are reaped by this thread only, so the id is still that of the child.
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        self.targets.add(pidfd.try_clone()?);
        Ok(pidfd)
    }

    /// Sends an answer. A server that has ended needs none; the next receipt sees its end.
    fn reply(&self, outcome: &io::Result<()>, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        match packet::send(&self.control, &answer(outcome), fds) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            sent => sent,
        }
    }
}
