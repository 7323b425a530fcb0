//! Block images: an image of any size is there as soon as the blocks that are touched are there,
//! each verified, and is never unpacked (FaaSNet 3.5).
//!
//! Invariant: no byte of an image is used before its digest was compared with the one that the
//! manifest, directly or through a Merkle root, names.

pub mod block;
pub mod convert;
pub mod erofs;
mod error;
pub mod layer;
pub mod manifest;
pub mod mount;
pub mod read;
pub mod source;
pub mod tree;

pub use convert::{Converted, Options, convert};
pub use error::Error;
pub use manifest::Image;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
