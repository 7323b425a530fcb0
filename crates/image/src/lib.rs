//! Block images: an image of any size can be used as soon as the blocks that are read have been
//! fetched and verified. It is never unpacked (FaaSNet, section 3.5).
//!
//! | step | module |
//! |---|---|
//! | sources of images | `source` |
//! | parse a layer's archive into changes and contents | `layer` |
//! | merge the changes of all layers into one tree | `tree` |
//! | write the tree as EROFS metadata over one device per layer | `erofs` |
//! | split contents into blocks | `block` |
//! | run these steps in order and store the result in a folder | `convert`, `manifest` |
//! | build images from a base, packages and code | `build` |
//! | read blocks on demand, from memory, disk and source | `read` |
//! | read blocks from other hosts, and serve them to others | `peer` |
//! | mount images through the kernel | `mount` |
//! | record the blocks that a start reads, prefetch them at the next start | `profile` |
//! | the process that the image's configuration describes | `run` |
//! | compare every digest | `verify` |
//! | compare two images | `diff` |
//! | copy images between registries and folders | `exchange` |
//! | remove unreferenced files from a folder | `collect`, `removal` |
//! | remove files that killed writers have left | `leftovers` |
//! | exclusion between processes | `lock` |
//!
//! The byte format is specified in `docs/reference/image-format.md`.
//!
//! Invariant: no byte of an image is used before its digest is compared with the expected one,
//! which the manifest contains directly or through a Merkle root.

pub mod block;
pub mod build;
mod collect;
mod convert;
pub mod diff;
pub mod erofs;
mod error;
pub mod exchange;
pub mod layer;
mod leftovers;
mod lock;
pub mod manifest;
pub mod mount;
pub mod peer;
pub mod profile;
pub mod read;
mod removal;
mod run;
pub mod source;
pub mod tree;
mod verify;

pub use collect::collect;
pub use convert::{Converted, Options, convert};
pub use error::Error;
pub use leftovers::sweep;
pub use lock::Lock;
pub use manifest::Image;
pub use removal::Collected;
pub use run::RunConfig;
pub use verify::{Damage, Verified, verify_image};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
