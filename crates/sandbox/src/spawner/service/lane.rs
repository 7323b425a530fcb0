//! The main function of a lane, and the creation of another lane.
//!
//! A lane is a copy of another: it has the same namespaces, roots and compiled policies, but
//! neither its sandboxes nor its control socket. Its parent is the server, so no lane depends on
//! another.
//!
//! Invariant: everything that a lane makes contains its number (control groups) or comes from its
//! share (user ids, folders), so lanes never conflict, and the remains of a dead lane can be told
//! from those of the others.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll;
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use snowmelt_kernel::clone::clone_sibling;

use super::{EventSubject, Service};
use crate::run_dir;
use crate::spawner::control;

impl Service {
    /// Reports that the lane is ready, serves until its end, and removes everything of its own.
    pub(in crate::spawner) fn run(&mut self) -> io::Result<()> {
        // Before it reports that it is ready: each process that it makes later starts in this
        // group.
        self.groups.enter_spawner_group();
        let own = [self.pidfd.as_fd()].into_iter();
        let fds: Vec<_> = own.chain(self.init.iter().map(AsFd::as_fd)).collect();
        let sent = control::send_setup_done(&self.control, Ok(()), &fds);
        let served = match sent {
            // A server that is killed before the lane is ready.
            Err(error) if control::is_server_gone(&error) => Ok(()),
            sent => sent.and_then(|()| self.serve()),
        };
        // Processes, then their groups, then the folder that names them: after a crash in between,
        // a sweep still finds what is left.
        self.end_all();
        self.groups.leave_spawner_group();
        self.groups.remove_all().map_err(io::Error::other)?;
        // After a failure the server may still run and use the folder.
        served?;
        let folder = &self.home.run_dir;
        let parent = &self.home.parent_cgroup;
        run_dir::remove_if_last(folder, parent).map_err(io::Error::other)
    }

    /// Makes another lane, whose control socket is in `fds`. If that fails, the server sees the end
    /// of that socket.
    pub(super) fn open_lane(&mut self, lane: u32, mut fds: Vec<OwnedFd>) {
        let Some(control) = fds.pop() else { return };
        let made = clone_sibling(|| match self.run_as(lane, control) {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("snowmelt spawner: lane {lane}: {error}");
                1
            }
        });
        if let Err(error) = made {
            eprintln!("snowmelt spawner: cannot make lane {lane}: {error}");
        }
    }

    /// Runs the copy as the lane of this number. The descriptors of the original lane are closed
    /// first: while they are open here, the server cannot see that lane end.
    fn run_as(&mut self, lane: u32, control: OwnedFd) -> io::Result<()> {
        self.control = control;
        // The epoll set is shared with that lane, so nothing is removed from it.
        self.epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        self.records.clear();
        self.names.clear();
        self.groups.become_lane(lane);
        self.roots.become_lane(lane);
        // Ids, groups and folders of its own: it must be able to tell its sandboxes from those of
        // the lane that it was copied from.
        self.slots = self.slots.of_lane(lane);
        self.pidfd = pidfd_open(getpid(), PidfdFlags::empty())?;
        self.watch(self.control.as_fd(), EventSubject::Control, 0)?;
        self.run()
    }
}
