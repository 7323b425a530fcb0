//! Converts an image of any origin to a block image in a layout folder.
//!
//! | part | file |
//! |---|---|
//! | layers in order, then the tree that they form | `converter` |
//! | the layout's cache of converted layers | `cache` |
//!
//! A layer is converted once per block size: its changes are cached under the digest of its
//! uncompressed bytes, so that an image which shares layers with an existing one reads only the
//! others. Two concurrent converters do the same work and store the same bytes.

mod cache;
mod converter;

pub(crate) use cache::{LayerCache, read_entry};
pub(crate) use converter::Converter;

use std::sync::Arc;

use crate::block::{BlockSize, OciDigest};
use crate::filesystem::layer::LayerLimits;
use crate::manifest::Descriptor;
use crate::source::{Config, ConversionSource, OciLayout};
use crate::{Image, Lock, Result};

/// Options of a conversion.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The raw bytes of a block.
    pub block_size: BlockSize,
    /// Limits of each layer.
    pub limits: LayerLimits,
}

/// The result of a conversion.
#[derive(Clone, Debug)]
pub struct Converted {
    /// The image.
    pub image: Image,
    /// The descriptor of the image's manifest in the layout.
    pub manifest: Descriptor,
    /// The number of layers that had been converted before.
    pub reused: usize,
    /// The number of blocks that were compressed and written: those of the other layers and of the
    /// metadata part.
    pub written_blocks: u64,
    /// The digests of the blobs of these blocks.
    pub written: Vec<OciDigest>,
    /// The number of device nodes that were omitted.
    pub devices: u64,
    /// Blocks garbage collection until the image can be named.
    pub(crate) _lease: Arc<Lock>,
}

/// Converts and stores an image. It has no name yet ([`OciLayout::tag`]); garbage collection is
/// blocked while the result lives.
pub fn convert(
    origin: &dyn ConversionSource,
    layout: &OciLayout,
    options: Options,
) -> Result<Converted> {
    let mut converter = Converter::new(layout, options)?;
    let described = converter.origin(origin)?;
    let config = match described.config {
        Some(bytes) => bytes,
        None => Config::plain(converter.diff_ids()).encode()?,
    };
    converter.finish(&config, described.original)
}
