//! Processes that the broker kills for the server: those in the control groups of its sandboxes, and
//! those that the broker or the server as root has started.
//!
//! Invariant: a process is judged and killed by the same pidfd. If it ends in between and its id is
//! another process's, the signal goes nowhere.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};

/// The most bytes of a file of `/proc` that are read.
const MAX_BYTES: usize = 8 << 10;

/// The processes that may be killed.
#[derive(Debug)]
pub(crate) struct Targets {
    /// The parent group between slashes, as it stands in `/proc/PID/cgroup`.
    group: String,
    /// Processes outside of these groups.
    known: Vec<OwnedFd>,
}

impl Targets {
    pub fn new(parent_cgroup: &str, known: Vec<OwnedFd>) -> Self {
        Self { group: format!("/{}/", parent_cgroup.trim_matches('/')), known }
    }

    /// Adds a process.
    pub fn add(&mut self, process: OwnedFd) {
        // Those that have ended need no place.
        self.known.retain(|process| pid_of(process.as_raw_fd()).is_some());
        self.known.push(process);
    }

    /// Kills a process.
    ///
    /// # Errors
    /// `EPERM` if it is none of these, `ESRCH` if it has ended.
    pub fn kill(&self, process: BorrowedFd<'_>) -> io::Result<()> {
        let pid = pid_of(process.as_raw_fd()).ok_or(Errno::SRCH)?;
        let is_known = || self.known.iter().any(|known| pid_of(known.as_raw_fd()) == Some(pid));
        if !is_known() && !self.is_in_group(pid)? {
            return Err(Errno::PERM.into());
        }
        Ok(pidfd_send_signal(process, Signal::KILL)?)
    }

    fn is_in_group(&self, pid: u32) -> io::Result<bool> {
        let mut buffer = [0; MAX_BYTES];
        let read = read(&format!("/proc/{pid}/cgroup"), &mut buffer)?;
        Ok(is_below(read, &self.group))
    }
}

/// Whether a text of `/proc/PID/cgroup` has a group below one that stands between slashes.
fn is_below(groups: &[u8], group: &str) -> bool {
    groups.split(|byte| *byte == b'\n').any(|line| {
        // NUMBER:CONTROLLERS:PATH
        let path = line.splitn(3, |byte| *byte == b':').nth(2).unwrap_or_default();
        path.windows(group.len()).any(|part| part == group.as_bytes())
    })
}

/// The id of the process of a pidfd; `None` if it has ended, or the descriptor is no pidfd.
fn pid_of(pidfd: i32) -> Option<u32> {
    let mut buffer = [0; MAX_BYTES];
    let text = read(&format!("/proc/self/fdinfo/{pidfd}"), &mut buffer).ok()?;
    let text = std::str::from_utf8(text).ok()?;
    let pid = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    // -1 is a process that has ended, 0 one of another pid namespace.
    pid.trim().parse().ok().filter(|pid| *pid > 0)
}

fn read<'a>(path: &str, buffer: &'a mut [u8; MAX_BYTES]) -> io::Result<&'a [u8]> {
    let mut file = File::open(path)?;
    let mut length = 0;
    loop {
        match file.read(&mut buffer[length..])? {
            0 => return Ok(&buffer[..length]),
            count => length += count,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::process::{Child, Command};

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    fn sleeper() -> (Child, OwnedFd) {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        (child, pidfd)
    }

    #[test]
    fn only_known_processes_are_killed() {
        let (mut known, pidfd) = sleeper();
        let (mut other, of_other) = sleeper();
        let mut targets = Targets::new("snowmelt/none-such", Vec::new());
        let refused = |targets: &Targets, process: &OwnedFd| {
            targets.kill(process.as_fd()).unwrap_err().raw_os_error()
        };
        assert_eq!(refused(&targets, &pidfd), Some(1));
        targets.add(pidfd.try_clone().unwrap());
        assert_eq!(refused(&targets, &of_other), Some(1));
        targets.kill(pidfd.as_fd()).unwrap();
        known.wait().unwrap();
        assert_eq!(refused(&targets, &pidfd), Some(3));
        let file: OwnedFd = File::open("/dev/null").unwrap().into();
        assert_eq!(refused(&targets, &file), Some(3));
        assert!(other.try_wait().unwrap().is_none(), "it lives");
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn groups_are_recognised_by_whole_names_of_their_paths() {
        let group = "/snowmelt/12-34/";
        let found = |text: &str| is_below(text.as_bytes(), group);
        assert!(found("5:memory:/snowmelt/12-34/0-1\n0::/\n"));
        assert!(found("0::/user.slice/x/snowmelt/12-34/0-7\n"));
        assert!(!found("0::/snowmelt/12-345/0-1\n5:memory:/snowmelt/12-34\n"));
        // Names of controllers are chosen by root only, but are no path.
        assert!(!found("1:name=/snowmelt/12-34/:/other\n"));
        assert!(!found(""));
    }
}
