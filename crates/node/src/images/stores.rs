//! What the state folder keeps of images beside those of this machine: blocks that were fetched,
//! and what starts touch.

use std::path::{Path, PathBuf};

use snowmelt_image::Result;
use snowmelt_image::block::OciDigest;
use snowmelt_image::profile::{Keys, Shelf, StartProfile};
use snowmelt_image::read::BlockCache;

/// The most bytes of cached blocks.
const CACHE: u64 = 10 << 30;

/// Where they are.
#[derive(Clone, Debug)]
pub struct Stores {
    state: PathBuf,
}

impl Stores {
    /// Opens nothing yet.
    pub fn new(state: &Path) -> Self {
        Self { state: state.to_owned() }
    }

    /// The cache of blocks, which one process holds at a time.
    pub fn cache(&self) -> Result<BlockCache> {
        BlockCache::open(&self.state.join("blocks"), CACHE)
    }

    /// What starts of an image touched here.
    pub fn start(&self, image: &OciDigest) -> Result<Option<StartProfile>> {
        let (shelf, keys) = self.starts()?;
        Ok(shelf.get(&keys, image))
    }

    /// Adds what one start touched, signed with the key of this platform.
    pub fn keep_start(&self, image: &OciDigest, touched: &StartProfile) -> Result<()> {
        let (shelf, keys) = self.starts()?;
        shelf.merge(&keys, image, touched).map(drop)
    }

    fn starts(&self) -> Result<(Shelf, Keys)> {
        let shelf = Shelf::open(&self.state.join("starts"))?;
        Ok((shelf, Keys::open(&self.state.join("profile-key"), Vec::new())?))
    }
}
