//! The work that another process does for this one, once this one has given up the rights of root.
//!
//! Invariant: the user of a process is the same for all of its threads, and so is this choice. It is
//! made once, before the first sandbox, and never taken back.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::OnceLock;

/// The work of the spawner's server that takes the rights of root.
pub trait Privileges: Send + Sync {
    /// Kills a process of a sandbox or of the spawner; returns before or, `now`, after the signal is
    /// sent.
    ///
    /// # Errors
    /// `EPERM` for any other process, `ESRCH` for one that has ended.
    fn kill(&self, process: BorrowedFd<'_>, now: bool) -> io::Result<()>;

    /// Starts the program of the spawner with this standard input. Returns its pidfd.
    ///
    /// # Errors
    /// The error of the start.
    fn start_spawner(&self, input: BorrowedFd<'_>) -> io::Result<OwnedFd>;

    /// Removes what a dead lane of the spawner has left. Blocks.
    ///
    /// # Errors
    /// The error of the first step that failed.
    fn clean_lane(&self, lane: u32) -> io::Result<()>;

    /// Removes what a dead spawner has left, and the run directory. Blocks.
    ///
    /// # Errors
    /// The error of the first step that failed.
    fn clean(&self) -> io::Result<()>;
}

static DELEGATED: OnceLock<Box<dyn Privileges>> = OnceLock::new();

/// Has `privileges` do what this process may not do any more. The first call counts.
pub fn delegate(privileges: Box<dyn Privileges>) {
    drop(DELEGATED.set(privileges));
}

/// Returns who does what this process may not do; `None` in a process that does it by itself.
pub(super) fn delegated() -> Option<&'static dyn Privileges> {
    DELEGATED.get().map(AsRef::as_ref)
}
