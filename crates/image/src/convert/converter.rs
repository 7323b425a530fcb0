//! Layers one after another to blobs, and the tree that they give to the metadata part.

use std::fs::File;
use std::io::{BufWriter, Read};
use std::sync::Arc;

use super::memo::Memo;
use super::{Converted, Options};
use crate::block::{BlobSummary, BlobWriter, OciDigest};
use crate::collect::sweep;
use crate::layer::{Layer, read_layer};
use crate::manifest::{Descriptor, OCI_CONFIG, OCI_MANIFEST};
use crate::source::{Config, Described, Layout, Origin};
use crate::tree::Tree;
use crate::{Error, Image, Lock, Result, erofs};

/// An image on its way.
pub(crate) struct Converter<'a> {
    layout: &'a Layout,
    lease: Arc<Lock>,
    memo: Memo<'a>,
    options: Options,
    tree: Tree,
    diff_ids: Vec<OciDigest>,
    blobs: Vec<BlobSummary>,
    reused: usize,
    pressed: u64,
    written: Vec<OciDigest>,
    devices: u64,
}

impl<'a> Converter<'a> {
    pub fn new(layout: &'a Layout, options: Options) -> Result<Self> {
        sweep(layout)?;
        Ok(Self {
            layout,
            lease: Arc::new(layout.keep_collectors_away()?),
            memo: Memo::new(layout, options.block_size),
            options,
            tree: Tree::default(),
            diff_ids: Vec::new(),
            blobs: Vec::new(),
            reused: 0,
            pressed: 0,
            written: Vec::new(),
            devices: 0,
        })
    }

    /// What the layout knows.
    pub fn memo(&self) -> &Memo<'a> {
        &self.memo
    }

    /// SHA-256 of each uncompressed layer so far, the lowest first.
    pub fn diff_ids(&self) -> Vec<OciDigest> {
        self.diff_ids.clone()
    }

    /// All layers of an image.
    pub fn origin(&mut self, origin: &dyn Origin) -> Result<Described> {
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
            match expected.and_then(|diff_id| self.memo.layer(diff_id)) {
                Some(known) => self.reuse(&known)?,
                None => drop(self.press(origin.layer(index)?, expected)?),
            }
        }
        Ok(described)
    }

    /// Begins with layers whose tree is known.
    pub fn begin(&mut self, tree: Tree, diff_ids: Vec<OciDigest>, blobs: Vec<BlobSummary>) {
        self.reused += blobs.len();
        (self.tree, self.diff_ids, self.blobs) = (tree, diff_ids, blobs);
    }

    /// Puts a layer that is there on top.
    pub fn reuse(&mut self, layer: &Layer) -> Result<()> {
        self.reused += 1;
        self.add(layer)
    }

    /// Reads a layer, keeps its blob and puts it on top.
    pub fn press(&mut self, stream: impl Read, expected: Option<&OciDigest>) -> Result<OciDigest> {
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
        self.memo.remember(&layer)?;
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

    /// Writes metadata part, configuration and manifest.
    pub fn finish(mut self, config: &[u8], original: Option<Descriptor>) -> Result<Converted> {
        let image = Image {
            metadata: self.metadata()?,
            layers: std::mem::take(&mut self.blobs),
            config: self.layout.put(OCI_CONFIG, config)?,
            original,
        };
        let manifest = self.layout.put(OCI_MANIFEST, &image.encode()?)?;
        let Self { reused, pressed, written, devices, lease, .. } = self;
        Ok(Converted { image, manifest, reused, pressed, written, devices, _lease: lease })
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
        self.pressed += blob.block_size.count(blob.raw_size);
        self.written.push(blob.digest.clone());
    }
}
