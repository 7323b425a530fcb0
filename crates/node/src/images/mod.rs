//! Images that functions run in, mounted lazily: once for each node, by a process beside it.
//!
//! | part | file |
//! |---|---|
//! | from a name to a manifest and where its blocks are | `resolve` |
//! | blocks, starts and raw files that are kept | `stores` |
//! | what the node and the daemon say to each other | `message` |
//! | the daemon: it serves blocks, answers who wants a mount | `daemon` |
//! | its mounts; what it reads them from | `mounts`, `sources` |
//! | complete images as files that need no daemon | `raw` |
//! | the node's side: it starts the daemon, asks it, replaces one that died | `keeper` |
//!
//! Why a process: a node that is killed must not leave a reader waiting for a block, and a fault in
//! what reads foreign bytes must not end the node. Invariant: mounts are in a mount namespace that
//! only the daemon and the node hold, so they are gone with both of them; what the kernel needs to
//! go on with a mount is held by both, so one alone can die.

mod daemon;
mod keeper;
mod message;
mod mounts;
mod raw;
mod resolve;
mod sources;
mod stores;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use daemon::image_daemon_main;
pub(crate) use keeper::{Images, Mounted};
pub use resolve::{Found, Origin, find_image};
pub(crate) use resolve::{find_pinned, has_registry};
pub use stores::{Settings, Stores};

/// What a thread that panicked left is as good as before: each change is one step.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
