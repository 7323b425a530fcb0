//! Images that functions run in, mounted lazily: once for each node, by a process beside it.
//!
//! | part | file |
//! |---|---|
//! | resolves a name to a manifest and the source of its blocks | `resolve` |
//! | goes on with what was found before while a registry is silent | `known` |
//! | stores of blocks, starts and raw files | `stores` |
//! | messages between the node and the daemon | `message`, `packets` |
//! | the daemon: serves blocks, answers requests for mounts | `daemon` |
//! | its mounts and their sources | `mounts`, `sources` |
//! | places among the hosts that use the same images | `place` |
//! | connections to and from these hosts | `peers` |
//! | the daemon's part: from where it reads, and what it serves | `sharing` |
//! | complete images as files that need no daemon | `raw` |
//! | the node's side: starts the daemon, sends it requests, replaces one that died | `keeper` |
//!
//! Why a process: a node that is killed must not leave a reader waiting for a block, and a fault in
//! what reads foreign bytes must not end the node. Invariant: mounts are in a mount namespace that
//! only the daemon and the node hold, so they vanish when both have ended; both hold the connection
//! that the kernel needs for a mount, so one of them alone can die.

mod connect;
mod daemon;
mod for_files;
mod keeper;
mod known;
mod message;
mod mounts;
mod noticed;
mod packets;
mod peers;
mod place;
mod raw;
mod resolve;
mod sharing;
mod sources;
mod stores;

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use snowmelt_sandbox::MountedImage;

pub(crate) use connect::connect;
pub use daemon::image_daemon_main;
pub(crate) use keeper::Images;
pub use peers::BLOCKS;
pub use place::{HeldImage, TreePlace, Upstream};
pub use resolve::{Found, Origin, find_image, has_registry};
pub(crate) use sharing::Sharing;
pub use stores::{Settings, Stores};

/// An image that is mounted.
#[derive(Debug)]
pub(crate) struct Mounted {
    /// For a sandbox's root.
    pub at: MountedImage,
    /// For reading files in it.
    pub root: OwnedFd,
}

/// The state that a panicked thread left is consistent: each change is one step.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
