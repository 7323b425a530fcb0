//! What a built image stands on, as the user names it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use snowmelt_image::block::OciDigest;
use snowmelt_image::build::BlockBase;
use snowmelt_image::exchange;
use snowmelt_image::read::LocalSource;
use snowmelt_image::source::{ImageLocation, Layout, Origin, Reference, Registry};
use snowmelt_image::{Error, Image, Options, Result};

use super::transfer::told;
use super::watched::{WatchedOrigin, blocking};
use crate::progress::Progress;

/// Which packages the base has installed.
const STATUS: &str = "var/lib/dpkg/status";
/// A list of so many bytes has every package of Debian.
const LARGEST_STATUS: u64 = 256 << 20;

/// A base.
pub(super) enum Below {
    Nothing,
    /// The lowest layer, remembered like any other.
    Folder(PathBuf),
    /// Converted with the rest.
    Origin(Arc<dyn Origin + Send + Sync>),
    /// A block image of this machine.
    Blocks(Box<Blocks>),
}

pub(super) struct Blocks {
    pub base: BlockBase,
    manifest: OciDigest,
    /// Keeps the blobs until the new image has a name.
    _held: Box<dyn Send>,
}

impl Blocks {
    async fn fetch(
        image: Image,
        manifest: OciDigest,
        held: Box<dyn Send>,
        layout: &Layout,
    ) -> Result<Box<Self>> {
        let source = Arc::new(LocalSource::new(layout.folder()));
        let base = BlockBase::fetch(image, source).await?;
        Ok(Box::new(Self { base, manifest, _held: held }))
    }
}

impl Below {
    /// A name means an image of this machine first, as everywhere.
    pub async fn find(
        place: Option<&ImageLocation>,
        layout: &Layout,
        progress: &Arc<Progress>,
    ) -> Result<Self> {
        match place {
            None => Ok(Self::Nothing),
            Some(ImageLocation::Folder(folder)) => Ok(Self::Folder(folder.clone())),
            Some(ImageLocation::Registry(name)) => Self::named(name, layout, progress).await,
            Some(other) => Ok(Self::Origin(other.open().await?.into())),
        }
    }

    async fn named(name: &Reference, layout: &Layout, progress: &Arc<Progress>) -> Result<Self> {
        match layout.find(Some(&name.to_string())) {
            Err(Error::Missing { .. }) => {}
            found => {
                let manifest = found?;
                let held = Box::new(layout.pin(&manifest.digest)?);
                let image = exchange::read(layout, &manifest)?;
                return Blocks::fetch(image, manifest.digest, held, layout).await.map(Self::Blocks);
            }
        }
        progress.doing(format!("asking {}", name.registry));
        let (_, bytes) = Registry::new(name)?.manifest(name.selector()).await?;
        if Image::decode(&bytes).is_err() {
            return Ok(Self::Origin(ImageLocation::Registry(name.clone()).open().await?.into()));
        }
        let pulled = exchange::pull(name, layout, &told(progress, "fetching")).await?;
        let (image, digest) = (pulled.image.clone(), pulled.manifest.digest.clone());
        Blocks::fetch(image, digest, Box::new(pulled), layout).await.map(Self::Blocks)
    }

    /// What tells it from other bases, as far as its packages matter.
    pub async fn identity(&self, progress: &Arc<Progress>) -> Result<String> {
        Ok(match self {
            Self::Nothing => String::new(),
            Self::Folder(folder) => match status(folder)? {
                Some(status) => OciDigest::of(&status).to_string(),
                None => String::new(),
            },
            Self::Origin(origin) => {
                let origin = Arc::clone(origin);
                let described = blocking(progress, move |_| origin.describe()).await?;
                match (described.original, described.config) {
                    (Some(original), _) => original.digest.to_string(),
                    (None, config) => OciDigest::of(&config.unwrap_or_default()).to_string(),
                }
            }
            Self::Blocks(blocks) => blocks.manifest.to_string(),
        })
    }

    /// The list of its packages, if it has one, and the base itself: one that only its layers tell
    /// is converted now.
    pub async fn with_status(
        self,
        layout: &Layout,
        options: Options,
        progress: &Arc<Progress>,
    ) -> Result<(Self, Option<Vec<u8>>)> {
        let blocks = match self {
            Self::Nothing => return Ok((Self::Nothing, None)),
            Self::Folder(folder) => {
                let found = status(&folder)?;
                return Ok((Self::Folder(folder), found));
            }
            Self::Blocks(blocks) => blocks,
            Self::Origin(origin) => {
                let store = layout.clone();
                let convert = move |watch| {
                    let origin = WatchedOrigin::new(origin, watch);
                    snowmelt_image::convert(&origin, &store, options)
                };
                let converted = blocking(progress, convert).await?;
                let (image, digest) = (converted.image.clone(), converted.manifest.digest.clone());
                Blocks::fetch(image, digest, Box::new(converted), layout).await?
            }
        };
        let found = blocks.base.file(STATUS, LARGEST_STATUS).await?;
        Ok((Self::Blocks(blocks), found))
    }
}

fn status(folder: &Path) -> Result<Option<Vec<u8>>> {
    let path = folder.join(STATUS);
    match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(|source| Error::Io { action: "read", path, source }),
    }
}
