//! The parts of the transfer of images between hosts that files of functions share: the cluster,
//! the limit of the link, the cache of blocks, and the record of hosts that sent wrong blocks.

use std::sync::Arc;

use snowmelt_image::peer::PeerHost;
use snowmelt_image::read::BlockCache;
use snowmelt_types::ByteSize;

use super::keeper::ImageKeeper;
use super::message::Notice;
use super::stores::Stores;
use super::tree_place::OwnCluster;

impl ImageKeeper {
    /// Returns the cluster that this host is in, if it is in one.
    pub fn cluster(&self) -> Option<&OwnCluster> {
        self.cluster.get()
    }

    /// Returns the most bytes a second that this host sends to other hosts; `None` without a limit.
    pub fn share(&self) -> Option<u64> {
        self.settings.share.map(ByteSize::bytes)
    }

    /// Opens the cache of blocks, beside the daemon that holds it; `None` if it cannot be opened.
    pub fn shared_cache(&self) -> Option<Arc<BlockCache>> {
        let opened = Stores::new(&self.state, self.settings.clone()).shared_cache();
        let warned = |error: &_| tracing::warn!(%error, "blocks are not cached");
        opened.inspect_err(warned).ok().map(Arc::new)
    }

    /// Remembers that a host sent a wrong block.
    pub fn expel(&self, host: &PeerHost) {
        self.noticed.take(Notice::Expelled(host.name.clone()));
    }
}
