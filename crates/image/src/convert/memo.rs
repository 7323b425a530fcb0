//! What a layout knows of layers that were converted: what each changes, and which layer a folder
//! was when it was read last.
//!
//! Invariant: a memo is replaced whole and is only a hint. One that cannot be read, or whose blob is
//! gone, is none.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::block::{BlockDigest, BlockSize, FRAME, OciDigest};
use crate::layer::Layer;
use crate::source::Layout;
use crate::{Error, Result};

/// The memos of a layout for one block size.
pub(crate) struct Memo<'a> {
    layout: &'a Layout,
    block_size: BlockSize,
}

impl<'a> Memo<'a> {
    pub fn new(layout: &'a Layout, block_size: BlockSize) -> Self {
        Self { layout, block_size }
    }

    /// A layer that is there.
    pub fn layer(&self, diff_id: &OciDigest) -> Option<Layer> {
        let layer = recall(&self.path(diff_id))?;
        let size = self.layout.blob_path(&layer.blob.digest).metadata().ok()?.len();
        (size == layer.blob.size && layer.diff_id == *diff_id).then_some(layer)
    }

    /// Keeps what is to be known of a layer whose blob is kept.
    pub fn remember(&self, layer: &Layer) -> Result<()> {
        let path = self.path(&layer.diff_id);
        let text = serde_json::to_vec(layer)
            .map_err(|error| Error::refused("a layer", error.to_string()))?;
        let pressed = press(&text).map_err(Error::io("write", &path))?;
        self.layout.replace(&path, &pressed)
    }

    /// The layer that something with this key was.
    pub fn source(&self, key: &BlockDigest) -> Option<Layer> {
        let text = fs::read_to_string(self.source_path(key)).ok()?;
        self.layer(&text.parse().ok()?)
    }

    /// Keeps which layer something with this key is.
    pub fn remember_source(&self, key: &BlockDigest, diff_id: &OciDigest) -> Result<()> {
        self.layout.replace(&self.source_path(key), diff_id.as_str().as_bytes())
    }

    fn path(&self, diff_id: &OciDigest) -> PathBuf {
        Self::path_in(self.layout, diff_id, self.block_size.log2())
    }

    /// Where a layout has the memo of a layer, if it has one.
    pub fn path_in(layout: &Layout, diff_id: &OciDigest, log2: u8) -> PathBuf {
        // A layer that an earlier version pressed into other frames is not taken for one of ours.
        let frame = FRAME.trailing_zeros();
        layout.private(&format!("layers/{}-{log2}-{frame}", diff_id.hex()))
    }

    fn source_path(&self, key: &BlockDigest) -> PathBuf {
        self.layout.private(&format!("sources/{key}"))
    }
}

/// With a checksum, by which a memo that a disk damaged is none.
fn press(text: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1)?;
    encoder.include_checksum(true)?;
    encoder.write_all(text)?;
    encoder.finish()
}

/// What the file of a memo says. Read whole first: JSON of ten megabytes is parsed from memory in a
/// third of the time that it takes from a stream.
pub(crate) fn recall(memo: &Path) -> Option<Layer> {
    let mut decoder = zstd::stream::read::Decoder::new(File::open(memo).ok()?).ok()?;
    let mut text = Vec::new();
    decoder.read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}
