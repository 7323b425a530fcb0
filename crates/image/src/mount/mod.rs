//! Mounts an image whose bytes are fetched on demand: with the kernel's EROFS over files that this
//! process serves by FUSE, or, if the kernel cannot mount EROFS on files, with the image's files
//! served by FUSE.
//!
//! | part | file |
//! |---|---|
//! | the FUSE protocol, as far as it is needed | `protocol` |
//! | the server that answers each request once | `server` |
//! | the flat folder of blobs that EROFS reads | `blobs` |
//! | the files of the image, without EROFS | `tree`, `entries` |
//! | reasons of failed reads | `failures` |
//! | the same files without a mount, for tests | `unmounted_image` |
//! | mounts and their servers, with takeover between processes | `lazy_mount` |
//! | the two methods, and the choice by probing the machine | `method`, `method_choice`, `probe` |
//!
//! No FUSE library is used: another process must be able to continue the connection, and the mount
//! must be detached, so that it can be attached in a sandbox's mount namespace (decision 017).
//!
//! Invariant: nothing that a sandbox sees can change, so the kernel may cache all replies for ever.

mod blobs;
mod entries;
mod failures;
mod lazy_mount;
mod method;
mod method_choice;
mod probe;
mod protocol;
mod server;
mod tree;
mod unmounted_image;

pub use lazy_mount::{ImageReaders, LazyMount, mount_files};
pub use method::{Form, supports_takeover};
pub use method_choice::{Chosen, MountChoice};
pub use probe::probe;
pub use unmounted_image::Unmounted;
