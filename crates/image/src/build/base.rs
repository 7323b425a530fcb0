//! The base of a built image.

use std::sync::Arc;

use crate::block::OciDigest;
use crate::convert::Converter;
use crate::filesystem::erofs::{self, UNIT};
use crate::filesystem::tree::{EntryPath, FileKind};
use crate::read::{BlobReader, BlockSource, BlockStore};
use crate::source::{Config, ConversionSource};
use crate::{Error, Image, Result};

/// A sanity limit on the metadata part: 2 GiB describe 16 million files.
const MAX_METADATA_BYTES: u64 = 2 << 30;

/// The image below the parts of a recipe.
#[derive(Clone, Copy)]
pub enum Base<'a> {
    /// Any image that can be converted. Layers that the layout has converted before are not read.
    Origin(&'a dyn ConversionSource),
    /// A block image. Its layers are not read and do not have to be local.
    Blocks(&'a BlockBase),
}

/// The parts of a block image that a build on top of it needs.
pub struct BlockBase {
    image: Image,
    blocks: Arc<BlockStore>,
    metadata: Vec<u8>,
    config: Vec<u8>,
}

impl BlockBase {
    /// Fetches the metadata part and the configuration of a block image.
    pub async fn fetch(image: Image, source: Arc<dyn BlockSource>) -> Result<Self> {
        let bytes = image.metadata.raw_size;
        if bytes > MAX_METADATA_BYTES {
            let what = "the metadata part".to_owned();
            let limit = MAX_METADATA_BYTES;
            return Err(Error::Limit { what, limit, unit: "bytes" });
        }
        let config = &image.config;
        let found = source.fetch(&config.digest, 0..config.size).await?;
        config.digest.check("the image's configuration", &found)?;
        let blocks = Arc::new(BlockStore::new(source, None));
        let reader = BlobReader::new(Arc::clone(&blocks), image.metadata.clone())?;
        let metadata = reader.read(0..bytes).await?;
        Ok(Self { image, blocks, metadata, config: found.to_vec() })
    }

    /// Reads the content of a file of the image. Returns `None` if the file does not exist, and
    /// fails if it has more than `most` bytes.
    pub async fn file(&self, path: &str, most: u64) -> Result<Option<Vec<u8>>> {
        let (tree, _) = erofs::read(&self.metadata)?;
        let found = tree.find(&EntryPath::parse(path.as_bytes())?).map(|id| tree.node(id));
        let Some((FileKind::File(extent), layer)) = found.map(|node| (&node.kind, node.layer))
        else {
            return Ok(None);
        };
        if extent.size > most {
            return Err(Error::Limit {
                what: format!("the file {path}"),
                limit: most,
                unit: "bytes",
            });
        }
        let layer = self.image.layers.get(layer);
        let layer = layer.ok_or_else(|| Error::refused("the base", "a file is in no layer"))?;
        let start = extent.block * UNIT as u64;
        let reader = BlobReader::new(Arc::clone(&self.blocks), layer.clone())?;
        reader.read(start..start + extent.size).await.map(Some)
    }
}

impl Base<'_> {
    /// Adds the base's layers to `converter` and returns its configuration.
    pub(super) fn apply(&self, converter: &mut Converter<'_>) -> Result<Option<Vec<u8>>> {
        match self {
            Self::Origin(origin) => Ok(converter.origin(*origin)?.config),
            Self::Blocks(base) => {
                let (tree, devices) = erofs::read(&base.metadata)?;
                let layers = base.image.layers.clone();
                let sizes = layers.iter().map(|blob| blob.raw_size.div_ceil(UNIT as u64));
                let diff_ids: Vec<OciDigest> = Config::parse(&base.config)?.diff_ids().to_vec();
                if !sizes.eq(devices.into_iter().map(u64::from)) || diff_ids.len() != layers.len() {
                    let reason = "its manifest, its metadata part and its configuration disagree";
                    return Err(Error::refused("the base", reason));
                }
                converter.start_from(tree, diff_ids, layers);
                Ok(Some(base.config.clone()))
            }
        }
    }
}
