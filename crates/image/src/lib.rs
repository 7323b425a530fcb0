//! Block images: an image of any size is there as soon as the blocks that are touched are there,
//! each verified, and is never unpacked (FaaSNet 3.5).
//!
//! | step | module |
//! |---|---|
//! | where images come from | `source` |
//! | the archive of a layer to changes and contents | `layer` |
//! | changes of all layers to one tree | `tree` |
//! | the tree as EROFS metadata over one device a layer | `erofs` |
//! | contents cut into blocks | `block` |
//! | all of these in order, kept in a folder | `convert`, `manifest` |
//! | images from a base, packages and code | `build` |
//! | blocks on demand, from memory, disk and source | `read` |
//! | the kernel's mount over them | `mount` |
//! | what a start touches, fetched ahead at the next | `profile` |
//! | what the configuration says of its process | `run` |
//! | every digest compared | `verify` |
//! | what two images share | `diff` |
//! | between registries and folders | `exchange` |
//! | what nothing names any more removed from a folder | `collect` |
//! | what only one process may do at a time | `lock` |
//!
//! The bytes are specified in `docs/image-format.md`.
//!
//! Invariant: no byte of an image is used before its digest was compared with the one that the
//! manifest, directly or through a Merkle root, names.

pub mod block;
pub mod build;
mod collect;
mod convert;
pub mod diff;
pub mod erofs;
mod error;
pub mod exchange;
pub mod layer;
mod lock;
pub mod manifest;
pub mod mount;
pub mod profile;
pub mod read;
mod run;
pub mod source;
pub mod tree;
mod verify;

pub use collect::{Collected, collect};
pub use convert::{Converted, Options, convert};
pub use error::Error;
pub use lock::Lock;
pub use manifest::Image;
pub use run::RunConfig;
pub use verify::{Damage, Verified, verify_image};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
