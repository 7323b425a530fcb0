//! A layout's cache of converted layers: the changes of each layer, and the layer that a folder
//! produced when it was read last.
//!
//! Invariant: a cache entry is replaced atomically and is only a hint. An entry that cannot be
//! read, or whose blob does not exist, is ignored.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::block::{BlockDigest, BlockSize, FRAME, OciDigest};
use crate::filesystem::layer::Layer;
use crate::source::OciLayout;
use crate::{Error, Result};

/// The cache entries of a layout for one block size.
pub(crate) struct LayerCache<'a> {
    layout: &'a OciLayout,
    block_size: BlockSize,
}

impl<'a> LayerCache<'a> {
    pub fn new(layout: &'a OciLayout, block_size: BlockSize) -> Self {
        Self { layout, block_size }
    }

    /// Reads a converted layer, if its blob still exists.
    pub fn layer(&self, diff_id: &OciDigest) -> Option<Layer> {
        let layer = read_entry(&self.path(diff_id))?;
        let size = self.layout.blob_path(&layer.blob.digest).metadata().ok()?.len();
        (size == layer.blob.size && layer.diff_id == *diff_id).then_some(layer)
    }

    /// Stores the changes of a layer whose blob is stored.
    pub fn store(&self, layer: &Layer) -> Result<()> {
        let path = self.path(&layer.diff_id);
        let text = serde_json::to_vec(layer)
            .map_err(|error| Error::refused("a layer", error.to_string()))?;
        let compressed = compress(&text).map_err(Error::io("write", &path))?;
        self.layout.replace(&path, &compressed)
    }

    /// Reads the layer that a source with this key produced.
    pub fn source(&self, key: &BlockDigest) -> Option<Layer> {
        let text = fs::read_to_string(self.source_path(key)).ok()?;
        self.layer(&text.parse().ok()?)
    }

    /// Stores which layer a source with this key produced.
    pub fn store_source(&self, key: &BlockDigest, diff_id: &OciDigest) -> Result<()> {
        self.layout.replace(&self.source_path(key), diff_id.as_str().as_bytes())
    }

    fn path(&self, diff_id: &OciDigest) -> PathBuf {
        Self::path_in(self.layout, diff_id, self.block_size.log2())
    }

    /// Returns the path of a layer's cache entry, which may not exist.
    pub fn path_in(layout: &OciLayout, diff_id: &OciDigest, log2: u8) -> PathBuf {
        // The frame size is part of the name, so that layers which earlier versions compressed with
        // other frames are not reused.
        let frame = FRAME.trailing_zeros();
        layout.private(&format!("layers/{}-{log2}-{frame}", diff_id.hex()))
    }

    fn source_path(&self, key: &BlockDigest) -> PathBuf {
        self.layout.private(&format!("sources/{key}"))
    }
}

/// Compresses an entry with a checksum, so that an entry which the disk damaged is ignored.
fn compress(text: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1)?;
    encoder.include_checksum(true)?;
    encoder.write_all(text)?;
    encoder.finish()
}

/// Reads a cache entry. The file is read as a whole first: parsing ten megabytes of JSON from
/// memory takes a third of the time that parsing from a stream takes.
pub(crate) fn read_entry(path: &Path) -> Option<Layer> {
    let mut decoder = zstd::stream::read::Decoder::new(File::open(path).ok()?).ok()?;
    let mut text = Vec::new();
    decoder.read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}
