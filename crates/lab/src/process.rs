//! Processes of a lab: starting one in a namespace, and finding and ending the running ones.
//!
//! Invariant: a process is pinned by a pidfd and then checked before it is signalled, so a process
//! that has got a dead one's pid is never hit.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use snowmelt_kernel::process::start_in_network;

use crate::{Error, Result, namespace};

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A process, identified by its pid and start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Process {
    pub pid: i32,
    /// The start time in ticks since the machine started.
    began: u64,
}

impl Process {
    /// Finds the process that has this pid now, unless it is a zombie. A process whose first thread
    /// has ended before the others is no zombie: it still has its files and locks.
    pub fn of(pid: i32) -> Option<Self> {
        Self::with_parent(pid).map(|(_, process)| process)
    }

    /// Finds the process that has this pid now. Returns it with the pid of its parent.
    fn with_parent(pid: i32) -> Option<(i32, Self)> {
        let (_, parent, process) = Self::with_state(pid)?;
        Some((parent, process))
    }

    /// Finds the process that has this pid now. Returns it with its state and the pid of its
    /// parent.
    fn with_state(pid: i32) -> Option<(char, i32, Self)> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may contain any characters.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let threads: u32 = fields.nth(15)?.parse().ok()?;
        let began = fields.nth(1)?.parse().ok()?;
        let is_over = matches!(state, 'Z' | 'X') && threads <= 1;
        (!is_over).then_some((state, parent, Self { pid, began }))
    }

    /// Whether the process was stopped by a signal.
    pub fn is_stopped(self) -> bool {
        Self::with_state(self.pid)
            .is_some_and(|(state, _, process)| state == 'T' && process == self)
    }

    pub fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// All processes below this one, each after its parent.
    pub fn below(self) -> Vec<Self> {
        let mut children: HashMap<i32, Vec<Self>> = HashMap::new();
        for (parent, process) in pids().filter_map(Self::with_parent) {
            children.entry(parent).or_default().push(process);
        }
        let mut found = children.remove(&self.pid).unwrap_or_default();
        let mut next = 0;
        while let Some(process) = found.get(next) {
            found.extend(children.remove(&process.pid).unwrap_or_default());
            next += 1;
        }
        found
    }

    /// The process itself and all processes below it.
    pub fn with_below(self) -> Vec<Self> {
        let mut found = self.below();
        found.insert(0, self);
        found
    }

    /// Stops this process and all processes below it, parents first, so that none can start another
    /// one.
    pub fn freeze(self) -> Result<()> {
        let mut stopped = HashSet::new();
        loop {
            let found = self.with_below();
            let new: Vec<_> = found.into_iter().filter(|found| stopped.insert(*found)).collect();
            if new.is_empty() {
                return Ok(());
            }
            send(&new, Signal::STOP)?;
        }
    }

    /// Sends the process a signal, unless it has ended.
    pub fn signal(self, kind: Signal) -> Result<()> {
        send(&[self], kind)
    }

    /// Kills the process; does nothing if it has ended.
    pub fn kill(self) -> Result<()> {
        send(&[self], Signal::KILL)
    }

    /// Waits until the process has ended, which was killed: on a busy machine that takes some time,
    /// during which the process seems to run.
    pub fn wait_for_end(self) {
        while self.is_alive() {
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Lets stopped processes go on, children first.
pub(crate) fn thaw(processes: &[Process]) -> Result<()> {
    let processes: Vec<_> = processes.iter().rev().copied().collect();
    send(&processes, Signal::CONT)
}

/// Sends a signal to the processes that have not ended.
fn send(processes: &[Process], kind: Signal) -> Result<()> {
    for process in processes {
        if let Some(pinned) = pin(process.pid)
            && process.is_alive()
        {
            signal(&pinned, kind)?;
        }
    }
    Ok(())
}

/// Starts a program in a namespace and a session of its own, with its output in a file.
pub(crate) fn start(mut command: Command, namespace: impl AsFd, log: &Path) -> Result<Process> {
    let open = || File::options().create(true).append(true).mode(0o600).open(log);
    let output = open().map_err(Error::folder(log))?;
    let errors = output.try_clone().map_err(Error::folder(log))?;
    let namespace = namespace.as_fd().try_clone_to_owned();
    let namespace = namespace.map_err(Error::step("keep a namespace"))?;
    command.stdin(Stdio::null()).stdout(output).stderr(errors).current_dir("/");
    let child = start_in_network(&mut command, namespace).spawn();
    let child = child.map_err(Error::step("start the process of a host"))?;
    let pid = child.id() as i32;
    // A process that has ended already gets a start time which no process has.
    Ok(Process::of(pid).unwrap_or(Process { pid, began: 0 }))
}

/// The identities of the namespaces that are mounted on these files.
pub(crate) fn identities(files: &[impl AsRef<Path>]) -> HashSet<(u64, u64)> {
    files.iter().filter_map(namespace::identity).collect()
}

/// Whether any process runs in one of the namespaces.
pub(crate) fn any_in(namespaces: &HashSet<(u64, u64)>) -> bool {
    pids().any(|pid| is_in(pid, namespaces))
}

/// Terminates all processes in the namespaces, kills those that do not end in time, and waits.
pub(crate) fn end_all_in(namespaces: &HashSet<(u64, u64)>, timeout: Duration) -> Result<()> {
    signal_all(namespaces, Signal::TERM)?;
    if is_empty_within(namespaces, timeout) {
        return Ok(());
    }
    let deadline = Instant::now() + timeout;
    // Repeated, because a process may have been forked after the scan.
    while Instant::now() < deadline {
        signal_all(namespaces, Signal::KILL)?;
        if is_empty_within(namespaces, POLL_INTERVAL * 5) {
            return Ok(());
        }
    }
    Err(Error::step("end what runs on the hosts")(std::io::ErrorKind::TimedOut.into()))
}

fn is_empty_within(namespaces: &HashSet<(u64, u64)>, timeout: Duration) -> bool {
    let deadline = Instant::now() + timeout;
    while any_in(namespaces) {
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(POLL_INTERVAL);
    }
    true
}

fn signal_all(namespaces: &HashSet<(u64, u64)>, kind: Signal) -> Result<()> {
    for pid in pids().filter(|pid| is_in(*pid, namespaces)) {
        if let Some(pinned) = pin(pid)
            && is_in(pid, namespaces)
        {
            signal(&pinned, kind)?;
        }
    }
    Ok(())
}

/// Whether a process is in one of the namespaces. A process that has ended, or is about to, has no
/// network namespace any more.
fn is_in(pid: i32, namespaces: &HashSet<(u64, u64)>) -> bool {
    namespace::identity(format!("/proc/{pid}/ns/net")).is_some_and(|own| namespaces.contains(&own))
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn pin(pid: i32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}

fn signal(pinned: &OwnedFd, kind: Signal) -> Result<()> {
    match pidfd_send_signal(pinned, kind) {
        Err(error) if error != rustix::io::Errno::SRCH => {
            Err(Error::step("signal a process of a host")(error.into()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::ops::{Deref, DerefMut};
    use std::process::Child;

    use super::*;

    /// A process that ends with the test, even if the test fails, together with all processes below
    /// it.
    pub(crate) struct ChildProcess(Child);

    impl ChildProcess {
        pub fn by(command: &mut Command) -> Self {
            Self(command.spawn().unwrap())
        }

        pub fn process(&self) -> Process {
            Process::of(self.0.id() as i32).unwrap()
        }
    }

    impl Deref for ChildProcess {
        type Target = Child;

        fn deref(&self) -> &Child {
            &self.0
        }
    }

    impl DerefMut for ChildProcess {
        fn deref_mut(&mut self) -> &mut Child {
            &mut self.0
        }
    }

    impl Drop for ChildProcess {
        fn drop(&mut self) {
            if let Some(process) = Process::of(self.0.id() as i32) {
                let _ = send(&process.with_below(), Signal::KILL);
            }
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_later_process_with_the_same_pid_is_another_one() {
        let own = Process::of(std::process::id() as i32).unwrap();
        assert!(own.is_alive());
        let former = Process { began: own.began - 1, ..own };
        assert!(!former.is_alive());
        // This would end the test.
        former.kill().unwrap();
    }

    #[test]
    fn a_frozen_process_and_those_below_it_go_on_when_they_are_thawed() {
        let mut shell = Command::new("sh");
        let child = ChildProcess::by(shell.args(["-c", "sleep 3600 & sleep 3600"]));
        let root = child.process();
        // A shell that has begun to start a program cannot be stopped before it has.
        let sleeps = |process: &Process| {
            fs::read_to_string(format!("/proc/{}/comm", process.pid)).unwrap() == "sleep\n"
        };
        while root.below().iter().filter(|process| sleeps(process)).count() < 2 {
            thread::sleep(POLL_INTERVAL);
        }
        let all = root.with_below();
        let state = |process: &Process| {
            let stat = fs::read_to_string(format!("/proc/{}/stat", process.pid)).unwrap();
            stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
        };
        root.freeze().unwrap();
        while !all.iter().all(|process| state(process) == 'T') {
            thread::sleep(POLL_INTERVAL);
        }
        thaw(&all).unwrap();
        while all.iter().any(|process| state(process) == 'T') {
            thread::sleep(POLL_INTERVAL);
        }
    }

    #[test]
    fn a_process_is_alive_until_its_last_thread_has_ended() {
        // The system call ends the first thread alone.
        let code = "import ctypes, platform, threading, time
threading.Thread(target=time.sleep, args=(3600,)).start()
ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[platform.machine()], 0)";
        let child = ChildProcess::by(Command::new("python3").args(["-c", code]));
        let seen = child.process();
        let state = || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", seen.pid)).unwrap();
            stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
        };
        while state() != 'Z' {
            thread::sleep(POLL_INTERVAL);
        }
        assert!(seen.is_alive());
        seen.kill().unwrap();
        while seen.is_alive() {
            thread::sleep(POLL_INTERVAL);
        }
    }

    #[test]
    fn a_zombie_is_not_alive() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        let seen = Process::of(pid).unwrap_or(Process { pid, began: 0 });
        while seen.is_alive() {
            thread::sleep(POLL_INTERVAL);
        }
        assert!(Path::new(&format!("/proc/{pid}")).exists());
        child.wait().unwrap();
    }
}
