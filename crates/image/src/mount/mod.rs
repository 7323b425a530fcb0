//! An image as a mount whose bytes come on demand: EROFS by the kernel over files of our own, or
//! where the kernel has no EROFS on files, its tree as a file system of our own.
//!
//! | part | file |
//! |---|---|
//! | the kernel's protocol for file systems in user space, as far as it is needed | `protocol` |
//! | its requests, each answered once | `server` |
//! | what EROFS reads: a flat folder of blobs | `blobs` |
//! | without EROFS: the files of the image | `tree`, `entries` |
//! | why reads failed | `failures` |
//! | the same in memory, for whoever tests it | `unmounted` |
//! | mounts and who serves them, over the end of a server's process | `lazy` |
//! | which of the two, and whether this machine can | `form`, `probe` |
//!
//! Why not a FUSE library: the connection must go on in another process, and the mount must be
//! attached nowhere, so that it can go into a sandbox's mount namespace (decision 017).
//!
//! Invariant: nothing that a sandbox sees can change, so all answers hold for ever.

mod blobs;
mod entries;
mod failures;
mod form;
mod lazy;
mod probe;
mod protocol;
mod server;
mod tree;
mod unmounted;

pub use form::{Choice, Chosen, Form, outlives_its_server};
pub use lazy::{LazyMount, mount_files};
pub use probe::probe;
pub use unmounted::Unmounted;
