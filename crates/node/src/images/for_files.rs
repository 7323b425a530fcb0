//! What files of functions share with images on their way between hosts: the cluster, the limit of
//! the link, the cache of blocks, and who sent wrong ones.

use std::sync::Arc;

use snowmelt_image::peer::PeerHost;
use snowmelt_image::read::BlockCache;
use snowmelt_types::ByteSize;

use super::keeper::Images;
use super::message::Notice;
use super::place::Cluster;
use super::stores::Stores;

impl Images {
    /// The cluster that this host is in, if it is in one.
    pub fn cluster(&self) -> Option<&Cluster> {
        self.cluster.get()
    }

    /// The most bytes a second to other hosts, if there is a limit.
    pub fn share(&self) -> Option<u64> {
        self.settings.share.map(ByteSize::bytes)
    }

    /// The cache of blocks, beside the daemon that holds it; none if it cannot be opened.
    pub fn shared_cache(&self) -> Option<Arc<BlockCache>> {
        let opened = Stores::new(&self.state, self.settings.clone()).shared_cache();
        let warned = |error: &_| tracing::warn!(%error, "blocks are not cached");
        opened.inspect_err(warned).ok().map(Arc::new)
    }

    /// Remembers a host that sent a wrong block.
    pub fn expel(&self, host: &PeerHost) {
        self.noticed.take(Notice::Expelled(host.name.clone()));
    }
}
