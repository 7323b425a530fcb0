//! The connections to other hosts for blocks of files.

use std::sync::Arc;

use async_trait::async_trait;
use snowmelt_image::peer::{Connect, PeerHost, PeerLink};

use crate::images::{ImageKeeper, connect};

/// The path of the request with which a host asks another for blocks of files.
pub const FILE_BLOCKS: &str = "/v1/files/blocks";

/// The means to connect to other hosts, with the token of the cluster that this host is in.
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
        connect(cluster.map(|cluster| &cluster.token), host, FILE_BLOCKS).await
    }

    fn expelled(&self, host: &PeerHost) {
        self.images.expel(host);
    }
}
