//! Images that functions run in, mounted lazily: once for each node, by a process beside it.
//!
//! | part | file |
//! |---|---|
//! | resolves a name to a manifest and the source of its blocks | `resolution` |
//! | goes on with what was found before while a registry is silent | `history` |
//! | the images of a tenant, and its logins for registries | `tenant_images` |
//! | stores of blocks, start profiles and raw files | `stores` |
//! | messages between the node and the daemon | `message`, `packets` |
//! | the daemon: serves blocks, answers requests for mounts | `daemon` |
//! | the notices that the daemon has sent | `notices` |
//! | places among the hosts that use the same images | `tree_place` |
//! | connections to and from these hosts | `peers`, `host_connection` |
//! | the parts that files of functions share | `file_sharing` |
//! | the node's side: starts the daemon, sends it requests, replaces one that died | `keeper` |
//!
//! Why a process: a node that is killed must not leave a reader waiting for a block, and a fault in
//! the code that reads foreign bytes must not end the node. Invariant: mounts are in a mount
//! namespace that only the daemon and the node hold, so they vanish when both have ended; both hold
//! the connection that the kernel needs for a mount, so the daemon or the node alone can die.

mod daemon;
mod file_sharing;
mod history;
mod host_connection;
mod keeper;
mod message;
mod notices;
mod packets;
mod peers;
mod resolution;
mod stores;
mod tenant_images;
mod tree_place;

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use snowmelt_sandbox::{Base, MountedImage, Root};

pub use daemon::image_daemon_main;
pub(crate) use daemon::sharing::Sharing;
pub(crate) use host_connection::{connect, named};
pub(crate) use keeper::ImageKeeper;
pub use peers::BLOCKS;
pub use resolution::{ImageOrigin, ResolvedImage, find_image, has_registry};
pub use stores::{ImageSettings, Stores};
pub use tenant_images::TenantImages;
pub use tree_place::{ControlAddress, HeldImage, TreePlace, Upstream};

/// An image that is mounted, as a node holds it.
#[derive(Debug)]
pub(crate) struct Mounted {
    /// The mount as a part of a sandbox's root.
    pub at: MountedImage,
    /// A descriptor of the mount's root folder, for reading files in the image.
    pub root: OwnedFd,
}

/// Returns all images that a root shows.
pub(crate) fn shown_in(root: &Root) -> impl Iterator<Item = &MountedImage> {
    let base = match &root.base {
        Base::Image(image) => Some(image),
        Base::Host | Base::Folder(_) => None,
    };
    base.into_iter().chain(root.image_binds.iter().map(|bind| &bind.image))
}

/// Locks a mutex, also after a thread has panicked with it: the state that the thread left is
/// consistent, because each change is one step.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
