//! An image of any origin to a block image in a layout folder.
//!
//! A layer is converted once for each block size: what it changes is remembered beside its blob, by
//! the digest of its uncompressed bytes, so that an image which shares layers with one that is there
//! reads only the others. Two converters at once do the same work and keep the same bytes.

use std::fs::File;
use std::io::BufWriter;

use crate::block::{BlobSummary, BlobWriter, BlockSize, OciDigest};
use crate::layer::{Layer, Limits, read_layer};
use crate::manifest::{Descriptor, OCI_CONFIG, OCI_MANIFEST};
use crate::source::{Config, Layout, Origin};
use crate::tree::Tree;
use crate::{Error, Image, Result, erofs};

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
    /// Device nodes that were left out.
    pub devices: u64,
}

/// Converts and keeps an image; it has no name yet ([`Layout::tag`]).
pub fn convert(origin: &dyn Origin, layout: &Layout, options: Options) -> Result<Converted> {
    let described = origin.describe()?;
    let config = described.config.as_deref().map(Config::parse).transpose()?;
    if let Some(config) = &config
        && config.diff_ids().len() != described.layers
    {
        let counts = (described.layers, config.diff_ids().len());
        let reason = format!("it has {} layers and its configuration names {}", counts.0, counts.1);
        return Err(Error::refused("the image", reason));
    }
    let mut converter = Converter { layout, options, tree: Tree::default(), reused: 0 };
    let mut layers = Vec::new();
    for index in 0..described.layers {
        let expected = config.as_ref().map(|config| &config.diff_ids()[index]);
        let layer = converter.layer(origin, index, expected)?;
        converter.tree.apply(&layer.entries)?;
        layers.push((layer.diff_id, layer.blob, layer.devices));
    }
    let config = match described.config {
        Some(bytes) => bytes,
        None => Config::plain(layers.iter().map(|layer| layer.0.clone()).collect()).encode()?,
    };
    let devices = layers.iter().map(|layer| layer.2).sum();
    let layers: Vec<BlobSummary> = layers.into_iter().map(|layer| layer.1).collect();
    let image = Image {
        metadata: converter.metadata(&layers)?,
        layers,
        config: layout.put(OCI_CONFIG, &config)?,
        original: described.original,
    };
    let manifest = layout.put(OCI_MANIFEST, &image.encode()?)?;
    Ok(Converted { image, manifest, reused: converter.reused, devices })
}

struct Converter<'a> {
    layout: &'a Layout,
    options: Options,
    tree: Tree,
    reused: usize,
}

impl Converter<'_> {
    fn layer(
        &mut self,
        origin: &dyn Origin,
        index: usize,
        expected: Option<&OciDigest>,
    ) -> Result<Layer> {
        if let Some(known) = expected.and_then(|diff_id| self.known(diff_id)) {
            self.reused += 1;
            return Ok(known);
        }
        let stream = origin.layer(index)?;
        let file = self.layout.pending()?;
        let path = file.path().to_owned();
        let out: BufWriter<File> = BufWriter::new(file.reopen().map_err(Error::io("open", &path))?);
        let writer = BlobWriter::new(out, &path, self.options.block_size);
        let (layer, _) = read_layer(stream, self.options.limits, writer)?;
        if let Some(expected) = expected {
            expected.check_is(&format!("the layer {index}"), &layer.diff_id)?;
        }
        self.layout.keep(file, &layer.blob.digest)?;
        self.remember(&layer)?;
        Ok(layer)
    }

    fn metadata(&self, layers: &[BlobSummary]) -> Result<BlobSummary> {
        let sizes: Vec<u64> = layers.iter().map(|blob| blob.raw_size).collect();
        let bytes = erofs::write(&self.tree, &sizes)?;
        let file = self.layout.pending()?;
        let path = file.path().to_owned();
        let out = BufWriter::new(file.reopen().map_err(Error::io("open", &path))?);
        let mut writer = BlobWriter::new(out, &path, self.options.block_size);
        writer.append(&bytes)?;
        let (summary, _) = writer.finish()?;
        self.layout.keep(file, &summary.digest)?;
        Ok(summary)
    }

    fn memo(&self, diff_id: &OciDigest) -> std::path::PathBuf {
        let name = format!("layers/{}-{}", diff_id.hex(), self.options.block_size.log2());
        self.layout.private(&name)
    }

    /// A layer that is there; a memo that cannot be read or whose blob is gone is none.
    fn known(&self, diff_id: &OciDigest) -> Option<Layer> {
        let memo = File::open(self.memo(diff_id)).ok()?;
        let decoder = zstd::stream::read::Decoder::new(memo).ok()?;
        let layer: Layer = serde_json::from_reader(std::io::BufReader::new(decoder)).ok()?;
        let size = self.layout.blob_path(&layer.blob.digest).metadata().ok()?.len();
        (size == layer.blob.size && layer.diff_id == *diff_id).then_some(layer)
    }

    fn remember(&self, layer: &Layer) -> Result<()> {
        let path = self.memo(&layer.diff_id);
        let text = serde_json::to_vec(layer)
            .map_err(|error| Error::refused("a layer", error.to_string()))?;
        let pressed = zstd::bulk::compress(&text, 1).map_err(Error::io("write", &path))?;
        self.layout.replace(&path, &pressed)
    }
}
