//! The broker's process: it waits for a request of eight bytes, does it, and answers.
//!
//! Invariant: the process has one thread and never waits for anything but requests and the ends of
//! children. What takes time is done by a copy of it, which answers by itself and ends.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Command, ExitCode, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, WaitId, WaitIdOptions, pidfd_open, setrlimit, waitid,
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
    let mut broker = BrokerLoop { control, setup, targets, files };
    broker.reply(&Ok(()), &[])?;
    broker.serve(&ends)
}

struct BrokerLoop {
    control: OwnedFd,
    setup: BrokerSetup,
    targets: Targets,
    files: FileService,
}

impl BrokerLoop {
    fn serve(&mut self, ends: &OwnedFd) -> io::Result<()> {
        loop {
            let mut ready =
                [PollFd::new(&self.control, PollFlags::IN), PollFd::new(ends, PollFlags::IN)];
            match poll(&mut ready, None) {
                Err(rustix::io::Errno::INTR) => continue,
                polled => polled?,
            };
            let asked = !ready[0].revents().is_empty();
            if !ready[1].revents().is_empty() {
                reap(ends);
            }
            if !asked {
                continue;
            }
            // Longer requests are errors of the receipt: nothing that the server sends is kept.
            let mut request = [0; REQUEST_BYTES];
            match packet::receive(&self.control, &mut request) {
                Ok(received) if received.length == 0 => return Ok(()),
                Ok(received) => {
                    let operation = Operation::decode(&request[..received.length]);
                    self.handle(operation, received)?;
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    self.reply(&Err(error), &[])?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn handle(&mut self, operation: Option<Operation>, mut packet: Packet) -> io::Result<()> {
        let invalid = || Err(io::Error::from_raw_os_error(rustix::io::Errno::INVAL.raw_os_error()));
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
                let door = &self.setup.socket;
                let forked =
                    clone_into(0, None, || file_process::run(socket, &connection, door, files));
                self.reply(&forked.map(drop), &[])
            }
            Some(Operation::Kill) => {
                // Nobody waits for an answer: the end of the process is seen by its pidfd.
                for process in &packet.fds {
                    if let Err(error) = self.targets.kill(process.as_fd())
                        && error.raw_os_error() != Some(rustix::io::Errno::SRCH.raw_os_error())
                    {
                        eprintln!("snowmelt broker: a process is not killed: {error}");
                    }
                }
                Ok(())
            }
            Some(Operation::CleanLane(lane)) if packet.fds.is_empty() => {
                let parent = &self.setup.parent_cgroup;
                self.apart(|| snowmelt_sandbox::clean_lane(parent, lane))
            }
            Some(Operation::Clean) if packet.fds.is_empty() => {
                let BrokerSetup { run_dir, parent_cgroup, .. } = &self.setup;
                self.apart(|| snowmelt_sandbox::clean_run_dir(run_dir, parent_cgroup))
            }
            _ => self.reply(&invalid(), &[]),
        }
    }

    /// Does work in a copy of this process, which answers.
    fn apart(&self, work: impl FnOnce() -> snowmelt_sandbox::Result<()>) -> io::Result<()> {
        let forked = clone_into(0, None, || {
            let outcome = work().map_err(|error| {
                eprintln!("snowmelt broker: {error}");
                io::Error::other(error)
            });
            i32::from(self.reply(&outcome, &[]).is_err())
        });
        forked.map(drop).or_else(|error| self.reply(&Err(error), &[]))
    }

    fn start(&mut self, program: StartedProgram, input: OwnedFd) -> io::Result<OwnedFd> {
        let mut command = Command::new(&self.setup.program);
        command.current_dir("/").stdin(Stdio::from(input)).stdout(Stdio::null());
        match program {
            StartedProgram::Spawner => command.args(["internal", "spawner"]),
            // One heap for all threads, because the remains of one for each add up; and the memory
            // of a request is returned immediately.
            StartedProgram::Images => command
                .args(["internal", "images"])
                .args([self.setup.user, self.setup.group].map(|number| number.to_string()))
                .envs([("MALLOC_ARENA_MAX", "1"), ("MALLOC_MMAP_THRESHOLD_", "524289")]),
        };
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

/// Reaps all children that have ended, also those that a started program left.
fn reap(ends: &OwnedFd) {
    // One signal stands for any number of ends.
    let mut read = [0; 128];
    let _ = rustix::io::read(ends, &mut read);
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    while let Ok(Some(_)) = waitid(WaitId::All, options) {}
}
