//! The user and the capabilities of a network daemon that a broker has started.

use std::io;

use snowmelt_kernel::process::become_user_keeping;

/// `CAP_NET_ADMIN`: devices, routes and packet rules of the host and of jobs.
const CAP_NET_ADMIN: u32 = 12;
/// `CAP_NET_RAW`: echo requests between the hosts of a job.
const CAP_NET_RAW: u32 = 13;
/// `CAP_SYS_PTRACE`: addresses in the memory of functions whose system calls the daemon answers.
const CAP_SYS_PTRACE: u32 = 19;
/// `CAP_SYS_ADMIN`: the network namespaces of jobs, and programs on control groups.
const CAP_SYS_ADMIN: u32 = 21;

/// The user that a network daemon becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkUser {
    /// The number of the user.
    pub user: u32,
    /// The number of the user's group.
    pub group: u32,
}

impl NetworkUser {
    /// Becomes the user before the first byte of the server is read.
    pub(super) fn take_rights(self) -> io::Result<()> {
        let kept = [CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_PTRACE, CAP_SYS_ADMIN];
        become_user_keeping(self.user, self.group, &kept)
    }
}
