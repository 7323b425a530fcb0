//! The life of a lane, and the making of another.
//!
//! A lane is a copy of one that is there: it has the same namespaces, roots and compiled policies,
//! and nothing else of it, neither its sandboxes nor its control socket. Its parent is the
//! server, so no lane depends on another.
//!
//! Invariant: what a lane makes bears its number (control groups) or comes from its share (user
//! ids, folders), so lanes never meet, and what a dead one left can be told from the others'.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll;
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use snowmelt_kernel::clone::clone_sibling;

use super::service::{Service, Watched};
use crate::run_dir;

impl Service {
    /// Says that it is ready, serves until it is to end, and leaves nothing of its own.
    pub fn live(&mut self) -> io::Result<()> {
        self.groups.settle();
        let own = [self.pidfd.as_fd()].into_iter();
        let fds: Vec<_> = own.chain(self.init.iter().map(AsFd::as_fd)).collect();
        let told = super::tell_setup(&self.control, Ok(()), &fds);
        let served = told.and_then(|()| self.serve());
        self.end_all();
        self.groups.leave();
        self.groups.remove_all().map_err(io::Error::other)?;
        // A lane that failed may have a server that goes on, with things of its own in the folder.
        served?;
        let (folder, parent) = (&self.home.run_dir, &self.home.parent_cgroup);
        run_dir::leave(folder, parent).map_err(io::Error::other)
    }

    /// Makes another lane, whose control socket is `fds`. If it cannot be made, the server sees
    /// the end of that socket.
    pub(super) fn open_lane(&mut self, lane: u32, mut fds: Vec<OwnedFd>) {
        let Some(control) = fds.pop() else { return };
        let made = clone_sibling(|| match self.live_as(lane, control) {
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

    /// What the copy does. The descriptors of the lane that it was copied from are closed first:
    /// while it has them, the end of that lane shows nowhere.
    fn live_as(&mut self, lane: u32, control: OwnedFd) -> io::Result<()> {
        self.control = control;
        // The list of what is watched is that lane's too, so nothing is taken off it.
        self.epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        self.cells.clear();
        self.names.clear();
        self.groups.turn_into_lane(lane);
        self.roots.turn_into_lane(lane);
        self.slots = self.slots.of_lane(lane);
        self.pidfd = pidfd_open(getpid(), PidfdFlags::empty())?;
        self.watch(self.control.as_fd(), Watched::Control, 0)?;
        self.live()
    }
}
