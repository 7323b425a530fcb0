//! An image of any origin to a block image in a layout folder.
//!
//! | part | file |
//! |---|---|
//! | layers one after another, then the tree that they give | `converter` |
//! | what a layout knows of layers that were converted | `memo` |
//!
//! A layer is converted once for each block size: what it changes is remembered beside its blob, by
//! the digest of its uncompressed bytes, so that an image which shares layers with one that is there
//! reads only the others. Two converters at once do the same work and keep the same bytes.

mod converter;
mod memo;

pub(crate) use converter::Converter;
pub(crate) use memo::{Memo, recall};

use std::sync::Arc;

use crate::block::{BlockSize, OciDigest};
use crate::layer::Limits;
use crate::manifest::Descriptor;
use crate::source::{Config, Layout, Origin};
use crate::{Image, Lock, Result};

/// How to convert.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Raw bytes of a block.
    pub block_size: BlockSize,
    /// Of each layer.
    pub limits: Limits,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Converted {
    /// The image.
    pub image: Image,
    /// Its manifest in the layout.
    pub manifest: Descriptor,
    /// Layers that were there already.
    pub reused: usize,
    /// Blocks that were compressed and written: those of the other layers and of the metadata part.
    pub pressed: u64,
    /// Blobs that these blocks are in.
    pub written: Vec<OciDigest>,
    /// Device nodes that were left out.
    pub devices: u64,
    /// Keeps collectors away until the image could be given a name.
    pub(crate) _lease: Arc<Lock>,
}

/// Converts and keeps an image; it has no name yet ([`Layout::tag`]) and stays without one as long as
/// what this gives is held.
pub fn convert(origin: &dyn Origin, layout: &Layout, options: Options) -> Result<Converted> {
    let mut converter = Converter::new(layout, options)?;
    let described = converter.origin(origin)?;
    let config = match described.config {
        Some(bytes) => bytes,
        None => Config::plain(converter.diff_ids()).encode()?,
    };
    converter.finish(&config, described.original)
}
