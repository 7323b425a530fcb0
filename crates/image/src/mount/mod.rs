//! An image as a mount: EROFS by the kernel over files whose bytes come on demand.
//!
//! | part | file |
//! |---|---|
//! | the kernel's protocol for file systems in user space, as far as flat files need it | `protocol` |
//! | answers to its requests | `server` |
//! | one file for each blob, EROFS on them | `lazy` |
//! | whether this machine can | `probe` |
//!
//! Why not a FUSE library: what is needed of the protocol is one flat folder of read-only files.
//! The connection must be handed over to another process, and the mount must be attached nowhere,
//! so that it can go into a sandbox's mount namespace; libraries own both.
//!
//! Invariant: all that a sandbox sees is the kernel's EROFS; this crate only answers "bytes a to b".

mod lazy;
mod probe;
mod protocol;
mod server;

pub use lazy::{LazyMount, mount_files};
pub use probe::probe;
