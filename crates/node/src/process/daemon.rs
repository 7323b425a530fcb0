//! The process of a daemon of the node: a child of this one, or of the broker where this one is not
//! root.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use snowmelt_broker::{Broker, StartedDaemon};
use snowmelt_kernel::packet;

/// A daemon that was started.
#[derive(Debug)]
pub(crate) enum DaemonProcess {
    Own(Child),
    /// A child of the broker, which ends it: this process is confined.
    Delegated(OwnedFd),
}

impl DaemonProcess {
    /// Starts a daemon with a socket as its standard input.
    pub fn start(daemon: StartedDaemon, program: &Path, input: OwnedFd) -> io::Result<Self> {
        if let Some(broker) = Broker::installed() {
            return broker.start_daemon(daemon, input.as_fd()).map(Self::Delegated);
        }
        let mut command = daemon.command(program);
        command.stdin(Stdio::from(input)).stdout(Stdio::null());
        // The command holds the daemon's end of the socket, and is dropped here: with it open, the
        // end of the daemon would not be seen.
        command.spawn().map(Self::Own)
    }

    /// Returns a pidfd, which is readable once the daemon has ended.
    pub fn pidfd(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Own(child) => Ok(pidfd_open(Pid::from_child(child), PidfdFlags::empty())?),
            Self::Delegated(pidfd) => pidfd.try_clone(),
        }
    }

    /// Waits until the daemon has ended. Returns how, where that is known.
    pub fn wait(&mut self) -> String {
        match self {
            Self::Own(child) => match child.wait() {
                Ok(status) => status.to_string(),
                Err(error) => error.to_string(),
            },
            Self::Delegated(pidfd) => {
                let ended = poll(&mut [PollFd::new(pidfd, PollFlags::IN)], None);
                ended.map_or_else(|error| error.to_string(), |_| "ended".to_owned())
            }
        }
    }

    /// Waits until the daemon has ended, for at most this time. Returns whether the daemon has ended.
    pub fn ends_within(&mut self, limit: Duration) -> bool {
        let ended = self.pidfd().and_then(|pidfd| packet::wait(pidfd, limit)).unwrap_or(false);
        if ended && let Self::Own(child) = self {
            // Reaped.
            drop(child.wait());
        }
        ended
    }

    /// Kills the daemon, and waits for its end.
    pub fn end(&mut self) {
        // Both fail only for one that has ended.
        match self {
            Self::Own(child) => drop(child.kill()),
            Self::Delegated(pidfd) => {
                drop(Broker::installed().map(|broker| broker.kill(pidfd.as_fd())));
            }
        }
        self.wait();
    }
}
