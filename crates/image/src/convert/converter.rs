//! Converts layers to blobs in order, and the tree that they form to the metadata part.

use std::fs::File;
use std::io::{BufWriter, Read};
use std::sync::Arc;

use super::cache::LayerCache;
use super::{Converted, Options};
use crate::block::{BlobSummary, BlobWriter, OciDigest};
use crate::filesystem::erofs;
use crate::filesystem::layer::{Layer, read_layer};
use crate::filesystem::tree::Tree;
use crate::manifest::{Descriptor, OCI_CONFIG, OCI_MANIFEST};
use crate::source::{Config, ConversionSource, Described, OciLayout, sweep};
use crate::{Error, Image, Lock, Result};

/// A conversion in progress.
pub(crate) struct Converter<'a> {
    layout: &'a OciLayout,
    lease: Arc<Lock>,
    cache: LayerCache<'a>,
    options: Options,
    tree: Tree,
    diff_ids: Vec<OciDigest>,
    blobs: Vec<BlobSummary>,
    reused: usize,
    written_blocks: u64,
    written: Vec<OciDigest>,
    devices: u64,
}

impl<'a> Converter<'a> {
    pub fn new(layout: &'a OciLayout, options: Options) -> Result<Self> {
        sweep(layout)?;
        Ok(Self {
            layout,
            lease: Arc::new(layout.keep_collectors_away()?),
            cache: LayerCache::new(layout, options.block_size),
            options,
            tree: Tree::default(),
            diff_ids: Vec::new(),
            blobs: Vec::new(),
            reused: 0,
            written_blocks: 0,
            written: Vec::new(),
            devices: 0,
        })
    }

    /// Returns the layout's cache of converted layers.
    pub fn cache(&self) -> &LayerCache<'a> {
        &self.cache
    }

    /// Returns the SHA-256 of each uncompressed layer so far, the lowest first.
    pub fn diff_ids(&self) -> Vec<OciDigest> {
        self.diff_ids.clone()
    }

    /// Adds all layers of an image.
    pub fn origin(&mut self, origin: &dyn ConversionSource) -> Result<Described> {
        let described = origin.describe()?;
        let config = described.config.as_deref().map(Config::parse).transpose()?;
        let (layers, named) =
            (described.layers, config.as_ref().map(|config| config.diff_ids().len()));
        if let Some(named) = named.filter(|named| *named != layers) {
            let reason = format!("it has {layers} layers and its configuration names {named}");
            return Err(Error::refused("the image", reason));
        }
        for index in 0..layers {
            let expected = config.as_ref().map(|config| &config.diff_ids()[index]);
            match expected.and_then(|diff_id| self.cache.layer(diff_id)) {
                Some(known) => self.reuse(&known)?,
                None => drop(self.convert_layer(origin.layer(index)?, expected)?),
            }
        }
        Ok(described)
    }

    /// Starts with converted layers and their tree.
    pub fn start_from(&mut self, tree: Tree, diff_ids: Vec<OciDigest>, blobs: Vec<BlobSummary>) {
        self.reused += blobs.len();
        (self.tree, self.diff_ids, self.blobs) = (tree, diff_ids, blobs);
    }

    /// Adds a layer that was converted before.
    pub fn reuse(&mut self, layer: &Layer) -> Result<()> {
        self.reused += 1;
        self.add(layer)
    }

    /// Reads a layer, stores its blob and adds it.
    pub fn convert_layer(
        &mut self,
        stream: impl Read,
        expected: Option<&OciDigest>,
    ) -> Result<OciDigest> {
        let file = self.layout.pending()?;
        let path = file.path().to_owned();
        let out: BufWriter<File> = BufWriter::new(file.reopen().map_err(Error::io("open", &path))?);
        let writer = BlobWriter::new(out, &path, self.options.block_size);
        let (layer, _) = read_layer(stream, self.options.limits, writer)?;
        if let Some(expected) = expected {
            expected.check_is(&format!("the layer {}", self.blobs.len()), &layer.diff_id)?;
        }
        self.count(&layer.blob);
        self.layout.keep(file, &layer.blob.digest)?;
        self.cache.store(&layer)?;
        self.add(&layer)?;
        Ok(layer.diff_id)
    }

    fn add(&mut self, layer: &Layer) -> Result<()> {
        self.tree.apply(&layer.entries)?;
        self.diff_ids.push(layer.diff_id.clone());
        self.blobs.push(layer.blob.clone());
        self.devices += layer.devices;
        Ok(())
    }

    /// Writes the metadata part, the configuration and the manifest.
    pub fn finish(mut self, config: &[u8], original: Option<Descriptor>) -> Result<Converted> {
        let image = Image {
            metadata: self.metadata()?,
            layers: std::mem::take(&mut self.blobs),
            config: self.layout.put(OCI_CONFIG, config)?,
            original,
        };
        let manifest = self.layout.put(OCI_MANIFEST, &image.encode()?)?;
        let Self { reused, written_blocks, written, devices, lease, .. } = self;
        Ok(Converted { image, manifest, reused, written_blocks, written, devices, _lease: lease })
    }

    fn metadata(&mut self) -> Result<BlobSummary> {
        let sizes: Vec<u64> = self.blobs.iter().map(|blob| blob.raw_size).collect();
        let bytes = erofs::write(&self.tree, &sizes)?;
        let file = self.layout.pending()?;
        let path = file.path().to_owned();
        let out = BufWriter::new(file.reopen().map_err(Error::io("open", &path))?);
        let mut writer = BlobWriter::new(out, &path, self.options.block_size);
        writer.append(&bytes)?;
        let (summary, _) = writer.finish()?;
        self.count(&summary);
        self.layout.keep(file, &summary.digest)?;
        Ok(summary)
    }

    fn count(&mut self, blob: &BlobSummary) {
        self.written_blocks += blob.block_size.count(blob.raw_size);
        self.written.push(blob.digest.clone());
    }
}
