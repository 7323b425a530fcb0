//! The connections to other hosts for blocks of files.

use std::sync::Arc;

use async_trait::async_trait;
use snowmelt_image::peer::{Connect, PeerHost, PeerLink};

use snowmelt_rpc::Meant;

use crate::images::{ImageKeeper, connect, named};

/// The path of the request with which a host asks another for blocks of files.
pub const FILE_BLOCKS: &str = "/v1/files/blocks";

/// The means to connect to other hosts, as a member of the cluster that this host is in.
pub(super) struct FileDialer {
    images: Arc<ImageKeeper>,
}

impl FileDialer {
    pub fn new(images: Arc<ImageKeeper>) -> Self {
        Self { images }
    }
}

#[async_trait]
impl Connect for FileDialer {
    async fn connect(&self, host: &PeerHost) -> snowmelt_image::Result<Box<dyn PeerLink>> {
        let cluster = self.images.cluster();
        // Files begin at control, whose name a host does not know.
        let control = cluster.and_then(|cluster| cluster.control.as_ref());
        let meant = match control.is_some_and(|control| control.get() == host.address) {
            true => Meant::Control,
            false => named(host)?,
        };
        connect(cluster.map(|cluster| &cluster.credential), host, meant, FILE_BLOCKS).await
    }

    fn expelled(&self, host: &PeerHost) {
        self.images.expel(host);
    }
}
