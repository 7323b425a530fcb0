//! What the state folder keeps of images beside those of this machine: blocks that were fetched,
//! and what starts touch.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use snowmelt_image::block::OciDigest;
use snowmelt_image::manifest::Descriptor;
use snowmelt_image::mount::Choice;
use snowmelt_image::profile::{self, Keys, ProfileStore, PublicKey, StartProfile};
use snowmelt_image::read::{BlockCache, RawFiles};
use snowmelt_image::source::{Access, Reference};
use snowmelt_image::{Error, Result};
use snowmelt_types::ByteSize;

/// What a platform does with images, as its user wants it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// How they are mounted.
    pub mount: Choice,
    /// The most bytes that complete ones take as raw files; zero for none.
    pub raw: ByteSize,
    /// The most bytes of cached blocks.
    pub cache: ByteSize,
    /// Authorities of registries that are trusted beside those of the system, in PEM.
    pub ca_file: Option<PathBuf>,
    /// Whether a start that touched something new is put beside its image in the registry.
    pub publish_starts: bool,
    /// The most bytes a second that are sent to other hosts of a cluster; no limit if none.
    pub share: Option<ByteSize>,
    /// Whether the hosts of a cluster read images from each other, if this host runs control.
    pub trees: bool,
    /// Whose starts are used beside those of this platform.
    pub trusted_keys: Vec<PublicKey>,
}

impl Default for Settings {
    fn default() -> Self {
        let (cache, raw) = (ByteSize(10 << 30), ByteSize(10 << 30));
        let (mount, publish_starts, trusted_keys) = (Choice::Auto, false, Vec::new());
        let (ca_file, share, trees) = (None, None, true);
        Self { mount, raw, cache, ca_file, publish_starts, share, trees, trusted_keys }
    }
}

/// Where they are.
#[derive(Clone, Debug)]
pub struct Stores {
    pub(super) state: PathBuf,
    pub(super) settings: Settings,
}

impl Stores {
    /// Opens nothing yet.
    pub fn new(state: &Path, settings: Settings) -> Self {
        Self { state: state.to_owned(), settings }
    }

    /// The cache of blocks, held by this process alone.
    pub fn cache(&self) -> Result<BlockCache> {
        BlockCache::open(&self.blocks(), self.settings.cache.bytes())
    }

    /// The same, beside another process that holds it if there is one.
    pub fn shared_cache(&self) -> Result<BlockCache> {
        BlockCache::join(&self.blocks(), self.settings.cache.bytes())
    }

    fn blocks(&self) -> PathBuf {
        self.state.join("blocks")
    }

    /// Complete images as files.
    pub fn raw(&self) -> RawFiles {
        RawFiles::new(&self.state.join("raw"), self.settings.raw.bytes())
    }

    /// By which other platforms can trust the starts of this one.
    pub fn key(&self) -> Result<PublicKey> {
        self.keys().map(|keys| keys.public())
    }

    /// What starts of an image touched here.
    pub fn start(&self, image: &OciDigest) -> Result<Option<StartProfile>> {
        let (shelf, keys) = self.starts()?;
        Ok(shelf.get(&keys, image))
    }

    /// What starts of an image touched elsewhere, as somebody trusted says beside it.
    pub async fn start_elsewhere(
        &self,
        name: &Reference,
        image: &OciDigest,
        access: &Access,
    ) -> Result<Option<StartProfile>> {
        profile::trusted(&access.registry(name)?, image, &self.keys()?).await
    }

    /// Adds what one start touched, signed with the key of this platform, and says whether that was
    /// new.
    pub fn keep_start(&self, image: &OciDigest, touched: &StartProfile) -> Result<bool> {
        let (shelf, keys) = self.starts()?;
        shelf.merge(&keys, image, touched)
    }

    /// Puts what is known of starts here beside the image in its registry; false if nothing is.
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
        // One that is damaged, or of a key that is gone, would be ignored by everybody.
        if shelf.get(&keys, &image.digest).is_none() {
            return Ok(false);
        }
        profile::publish(&access.registry(name)?, image, &signed).await.map(|()| true)
    }

    fn starts(&self) -> Result<(ProfileStore, Keys)> {
        Ok((ProfileStore::open(&self.state.join("starts"))?, self.keys()?))
    }

    fn keys(&self) -> Result<Keys> {
        Keys::open(&self.state.join("profile-key"), self.settings.trusted_keys.clone())
    }
}
