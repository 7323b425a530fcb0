//! The base of a built image, as the user names it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use snowmelt_image::block::OciDigest;
use snowmelt_image::build::BlockBase;
use snowmelt_image::exchange;
use snowmelt_image::read::LocalSource;
use snowmelt_image::source::{
    Access, ConversionSource, ImageLocation, OciLayout, Reference, Registry,
};
use snowmelt_image::{Error, Image, Options, Result};

use super::progress_watch::{WatchedOrigin, blocking};
use super::transfer::progress_callback;
use crate::terminal::ProgressDisplay;

/// The list of the packages that the base has installed.
const STATUS: &str = "var/lib/dpkg/status";
/// Size limit of this list; a list of all Debian packages is smaller.
const LARGEST_STATUS: u64 = 256 << 20;

/// A base.
pub(super) enum BaseImage {
    Nothing,
    /// A folder, which becomes the lowest layer and is cached like any other.
    Folder(PathBuf),
    /// An image of another kind, which is converted.
    Origin(Arc<dyn ConversionSource + Send + Sync>),
    /// A local block image.
    Blocks(Box<BaseBlocks>),
}

pub(super) struct BaseBlocks {
    pub base: BlockBase,
    manifest: OciDigest,
    /// Protects the blobs from `prune` until the new image has a name.
    _lock: Box<dyn Send>,
}

impl BaseBlocks {
    async fn fetch(
        image: Image,
        manifest: OciDigest,
        lock: Box<dyn Send>,
        layout: &OciLayout,
    ) -> Result<Box<Self>> {
        let source = Arc::new(LocalSource::new(layout.folder()));
        let base = BlockBase::fetch(image, source).await?;
        Ok(Box::new(Self { base, manifest, _lock: lock }))
    }
}

impl BaseImage {
    /// Finds the base. A name means a local image first, as in all commands.
    pub async fn find(
        place: Option<&ImageLocation>,
        layout: &OciLayout,
        progress: &Arc<ProgressDisplay>,
    ) -> Result<Self> {
        match place {
            None => Ok(Self::Nothing),
            Some(ImageLocation::Folder(folder)) => Ok(Self::Folder(folder.clone())),
            Some(ImageLocation::Registry(name)) => Self::named(name, layout, progress).await,
            Some(other) => Ok(Self::Origin(other.open(&Access::own()).await?.into())),
        }
    }

    async fn named(
        name: &Reference,
        layout: &OciLayout,
        progress: &Arc<ProgressDisplay>,
    ) -> Result<Self> {
        match layout.find(Some(&name.to_string())) {
            Err(Error::Missing { .. }) => {}
            found => {
                let manifest = found?;
                let lock = Box::new(layout.pin(&manifest.digest)?);
                let image = exchange::read(layout, &manifest)?;
                return BaseBlocks::fetch(image, manifest.digest, lock, layout)
                    .await
                    .map(Self::Blocks);
            }
        }
        progress.set_label(format!("querying {}", name.registry));
        let (_, bytes) = Registry::new(name)?.manifest(name.selector()).await?;
        if Image::decode(&bytes).is_err() {
            let place = ImageLocation::Registry(name.clone());
            return Ok(Self::Origin(place.open(&Access::own()).await?.into()));
        }
        let pulled =
            exchange::pull(name, layout, &Access::own(), &progress_callback(progress, "fetching"))
                .await?;
        let image = pulled.image.clone();
        let digest = pulled.manifest.digest.clone();
        BaseBlocks::fetch(image, digest, Box::new(pulled), layout).await.map(Self::Blocks)
    }

    /// An identity of the base that changes when its packages change.
    pub async fn identity(&self, progress: &Arc<ProgressDisplay>) -> Result<String> {
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

    /// Returns the base with the list of its installed packages, if it has one. An image of another
    /// kind is converted first, because the list is in its layers.
    pub async fn with_status(
        self,
        layout: &OciLayout,
        options: Options,
        progress: &Arc<ProgressDisplay>,
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
                let image = converted.image.clone();
                let digest = converted.manifest.digest.clone();
                BaseBlocks::fetch(image, digest, Box::new(converted), layout).await?
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
