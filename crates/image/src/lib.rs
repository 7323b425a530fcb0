//! Block images: an image of any size can be used as soon as the blocks that are read have been
//! fetched and verified. It is never unpacked (FaaSNet, section 3.5).
//!
//! | step | room or file |
//! |---|---|
//! | sources of images, and the folders that store them | `source` |
//! | the file system of an image: layers, their merged tree, EROFS | `filesystem` |
//! | split contents into blocks | `block` |
//! | run these steps in order and store the result in a folder | `convert`, `manifest` |
//! | build images from a base, packages and code | `build` |
//! | read blocks on demand, from memory, disk and source | `read` |
//! | read blocks from other hosts, and serve them to others | `peer` |
//! | mount images through the kernel | `mount` |
//! | record the blocks that a start reads, prefetch them at the next start | `profile` |
//! | the process that the image's configuration describes | `process_config` |
//! | compare, verify and copy whole images, and collect what none references | `operations` |
//! | the removal of files | `removal` |
//! | exclusion between processes | `lock` |
//! | errors | `error` |
//!
//! The byte format is specified in `docs/reference/image-format.md`.
//!
//! Invariant: no byte of an image is used before its digest is compared with the expected one,
//! which the manifest contains directly or through a Merkle root.

pub mod block;
pub mod build;
mod convert;
mod error;
mod filesystem;
mod lock;
pub mod manifest;
pub mod mount;
mod operations;
pub mod peer;
mod process_config;
pub mod profile;
pub mod read;
mod removal;
pub mod source;

pub use convert::{Converted, Options, convert};
pub use error::Error;
pub use filesystem::{erofs, layer, tree};
pub use lock::Lock;
pub use manifest::Image;
pub use operations::{Damage, Verified, collect, diff, exchange, verify_image};
pub use process_config::RunConfig;
pub use removal::Collected;
pub use source::sweep;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
