//! Images that functions run in, mounted lazily: once for each node, by a process beside it.
//!
//! | part | file |
//! |---|---|
//! | resolves a name to a manifest and the source of its blocks | `resolve` |
//! | goes on with what was found before while a registry is silent | `known` |
//! | stores of blocks, start profiles and raw files | `stores` |
//! | messages between the node and the daemon | `message`, `packets` |
//! | the daemon: serves blocks, answers requests for mounts | `daemon` |
//! | the mounts of the daemon and their sources | `mounts`, `sources` |
//! | places among the hosts that use the same images | `place` |
//! | connections to and from these hosts | `peers` |
//! | the daemon's part: from where it reads, and what it serves | `sharing` |
//! | complete images as files that need no daemon | `raw` |
//! | the node's side: starts the daemon, sends it requests, replaces one that died | `keeper` |
//!
//! Why a process: a node that is killed must not leave a reader waiting for a block, and a fault in
//! the code that reads foreign bytes must not end the node. Invariant: mounts are in a mount
//! namespace that only the daemon and the node hold, so they vanish when both have ended; both hold
//! the connection that the kernel needs for a mount, so the daemon or the node alone can die.

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

/// An image that is mounted, as a node holds it.
#[derive(Debug)]
pub(crate) struct Mounted {
    /// The mount as a part of a sandbox's root.
    pub at: MountedImage,
    /// A descriptor of the mount's root folder, for reading files in the image.
    pub root: OwnedFd,
}

/// Locks a mutex, also after a thread has panicked with it: the state that the thread left is
/// consistent, because each change is one step.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
