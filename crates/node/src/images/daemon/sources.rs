//! The sources from which the daemon reads blocks: the folders of images of this machine, and
//! registries or other hosts, with the cache.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use snowmelt_image::peer::{PeerSource, Upstreams};
use snowmelt_image::read::{BlockCache, BlockSource, BlockStore};
use snowmelt_image::source::OciLayout;
use snowmelt_image::{Error, Lock, Result};
use snowmelt_types::Tenant;

use crate::images::locked;
use crate::images::message::ImageSpec;
use crate::images::resolution::ImageOrigin;
use crate::images::stores::Stores;

/// The sources of all images that were read so far.
pub(super) struct ImageSources {
    stores: Stores,
    upstreams: Arc<Upstreams>,
    cache: OnceLock<Option<BlockCache>>,
    blocks: Mutex<HashMap<(Tenant, ImageOrigin), Arc<BlockStore>>>,
}

impl ImageSources {
    pub fn new(stores: Stores, upstreams: Arc<Upstreams>) -> Self {
        Self { stores, upstreams, cache: OnceLock::new(), blocks: Mutex::default() }
    }

    /// Pins the blobs of an image in a layout folder of the platform while it is mounted, whatever
    /// becomes of its name; `None` for other images.
    pub fn hold(&self, spec: &ImageSpec) -> Result<Option<Lock>> {
        let ImageOrigin::Layout(folder) = &spec.origin else { return Ok(None) };
        // The layout of another owner is only read.
        let ours = folder.starts_with(&self.stores.state);
        ours.then(|| OciLayout::open(folder)?.pin(&spec.digest)).transpose()
    }

    /// Returns the blocks of an origin, which all images of a tenant from there share.
    pub fn blocks(&self, tenant: &Tenant, origin: &ImageOrigin) -> Result<Arc<BlockStore>> {
        let mut all = locked(&self.blocks);
        let key = (tenant.clone(), origin.clone());
        if let Some(blocks) = all.get(&key) {
            return Ok(Arc::clone(blocks));
        }
        let stores = self.stores.of(tenant);
        let source = origin.source(&stores.images().access())?;
        let (source, cache) = match origin {
            ImageOrigin::Layout(_) => (source, None),
            ImageOrigin::Registry(_) => {
                let source = PeerSource::new(source, Arc::clone(&self.upstreams));
                (Arc::new(source) as Arc<dyn BlockSource>, self.cache(&stores))
            }
        };
        let blocks = Arc::new(BlockStore::new(source, cache));
        all.insert(key, Arc::clone(&blocks));
        Ok(blocks)
    }

    /// Returns the view of a tenant of the cache of blocks, which the first image that needs it
    /// opens; `None` if it cannot be opened.
    fn cache(&self, stores: &Stores) -> Option<Arc<BlockCache>> {
        let cache = self.cache.get_or_init(|| {
            let warned = |error: &Error| tracing::warn!(%error, "blocks are not cached");
            self.stores.shared_cache().inspect_err(warned).ok()
        });
        cache.as_ref().map(|cache| Arc::new(stores.view(cache)))
    }
}
