//! The stores of images in the state folder, beside the images of this machine: fetched blocks, raw
//! files, and start profiles, which say what starts of an image touch.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use snowmelt_image::block::OciDigest;
use snowmelt_image::manifest::Descriptor;
use snowmelt_image::mount::MountChoice;
use snowmelt_image::profile::{self, ProfileKeys, ProfileStore, PublicKey, StartProfile};
use snowmelt_image::read::{BlockCache, RawFiles};
use snowmelt_image::source::{Access, Reference};
use snowmelt_image::{Error, Result};
use snowmelt_types::{ByteSize, Tenant};

use super::tenant_images::TenantImages;

/// The settings of images, as the user of the platform chooses them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageSettings {
    /// The way in which images are mounted.
    pub mount: MountChoice,
    /// The most bytes that complete images take as raw files; zero for no raw files.
    pub raw: ByteSize,
    /// The most bytes of cached blocks.
    pub cache: ByteSize,
    /// A file of certificate authorities of registries, in PEM, that are trusted beside those of
    /// the system; `None` for no others.
    pub ca_file: Option<PathBuf>,
    /// Whether the start profile of an image is put beside the image in its registry when a start
    /// touched something new.
    pub publish_starts: bool,
    /// The most bytes a second that are sent to other hosts of a cluster; `None` for no limit.
    pub share: Option<ByteSize>,
    /// Whether the hosts of a cluster read images from each other, if this host runs control.
    pub trees: bool,
    /// The keys of other platforms whose start profiles are used beside those of this platform.
    pub trusted_keys: Vec<PublicKey>,
}

impl Default for ImageSettings {
    fn default() -> Self {
        let cache = ByteSize(10 << 30);
        let raw = ByteSize(10 << 30);
        let mount = MountChoice::Auto;
        let publish_starts = false;
        let trusted_keys = Vec::new();
        let ca_file = None;
        let share = None;
        let trees = true;
        Self { mount, raw, cache, ca_file, publish_starts, share, trees, trusted_keys }
    }
}

/// The stores of images in a state folder, with the settings for them.
#[derive(Clone, Debug)]
pub struct Stores {
    pub(super) state: PathBuf,
    /// The tenant whose blocks and raw files these are.
    pub(super) images: TenantImages,
    pub(super) settings: ImageSettings,
}

impl Stores {
    /// Names the stores of the tenant `default` in the state folder `state`; opens nothing yet.
    pub fn new(state: &Path, settings: ImageSettings) -> Self {
        let images = TenantImages::new(state, &Tenant::default());
        Self { state: state.to_owned(), images, settings }
    }

    /// Returns the stores of a tenant. Profiles and keys are those of the platform.
    pub fn of(&self, tenant: &Tenant) -> Self {
        Self { images: TenantImages::new(&self.state, tenant), ..self.clone() }
    }

    /// Returns the images that the stores are beside.
    pub fn images(&self) -> &TenantImages {
        &self.images
    }

    /// Opens the tenant's view of the cache of blocks, held by this process alone.
    pub fn cache(&self) -> Result<BlockCache> {
        BlockCache::open(&self.blocks(), self.settings.cache.bytes()).map(|cache| self.view(&cache))
    }

    /// Opens the tenant's view of the cache of blocks beside another process that holds it, if there is one.
    pub fn shared_cache(&self) -> Result<BlockCache> {
        BlockCache::join(&self.blocks(), self.settings.cache.bytes()).map(|cache| self.view(&cache))
    }

    /// Returns the view of the tenant of a cache, which no other one shares.
    pub fn view(&self, cache: &BlockCache) -> BlockCache {
        let tenant = self.images.tenant();
        cache.of_tenant((*tenant != Tenant::default()).then_some(tenant.as_str()))
    }

    fn blocks(&self) -> PathBuf {
        self.state.join("blocks")
    }

    /// Returns the store of complete images as raw files.
    pub fn raw(&self) -> RawFiles {
        RawFiles::new(&self.images.folder().join("raw"), self.settings.raw.bytes())
    }

    /// Returns the public key by which other platforms can trust the start profiles of this one.
    pub fn key(&self) -> Result<PublicKey> {
        self.keys().map(|keys| keys.public())
    }

    /// Returns the start profile of an image on this host: the blocks that starts here touched;
    /// `None` if there is none.
    pub fn start(&self, image: &OciDigest) -> Result<Option<StartProfile>> {
        let (shelf, keys) = self.starts()?;
        Ok(shelf.get(&keys, image))
    }

    /// Fetches the start profile of an image that somebody trusted has put beside the image in its
    /// registry; `None` if there is none.
    pub async fn start_elsewhere(
        &self,
        name: &Reference,
        image: &OciDigest,
        access: &Access,
    ) -> Result<Option<StartProfile>> {
        profile::trusted(&access.registry(name)?, image, &self.keys()?).await
    }

    /// Adds what one start touched to the start profile of an image, signed with the key of this
    /// platform. Returns whether that was new.
    pub fn keep_start(&self, image: &OciDigest, touched: &StartProfile) -> Result<bool> {
        let (shelf, keys) = self.starts()?;
        shelf.merge(&keys, image, touched)
    }

    /// Puts the start profile of an image on this host beside the image in its registry; `false` if
    /// there is none.
    pub async fn publish_start(
        &self,
        name: &Reference,
        image: &Descriptor,
        access: &Access,
    ) -> Result<bool> {
        let (shelf, keys) = self.starts()?;
        let signed = match shelf.read(&image.digest) {
            Err(Error::Missing { .. }) => return Ok(false),
            read => read?,
        };
        // A profile that is damaged, or signed with a key that is gone, would be ignored by
        // everybody.
        if shelf.get(&keys, &image.digest).is_none() {
            return Ok(false);
        }
        profile::publish(&access.registry(name)?, image, &signed).await.map(|()| true)
    }

    fn starts(&self) -> Result<(ProfileStore, ProfileKeys)> {
        Ok((ProfileStore::open(&self.state.join("starts"))?, self.keys()?))
    }

    fn keys(&self) -> Result<ProfileKeys> {
        ProfileKeys::open(&self.state.join("profile-key"), self.settings.trusted_keys.clone())
    }
}
