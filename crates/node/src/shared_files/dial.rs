//! Connections to other hosts, for blocks of files.

use std::sync::Arc;

use async_trait::async_trait;
use snowmelt_image::peer::{Connect, Link, PeerHost};
use snowmelt_rpc::upgrade;

use crate::images::Images;

/// Where blocks of files are asked for.
pub(crate) const FILE_BLOCKS: &str = "/v1/files/blocks";

/// With the token of the cluster that this host is in.
pub(super) struct Dial {
    images: Arc<Images>,
}

impl Dial {
    pub fn new(images: Arc<Images>) -> Self {
        Self { images }
    }
}

#[async_trait]
impl Connect for Dial {
    async fn connect(&self, host: &PeerHost) -> snowmelt_image::Result<Box<dyn Link>> {
        let unreachable = |reason: String| snowmelt_image::Error::Unreachable {
            what: format!("the host {host}"),
            reason,
            after: None,
        };
        let cluster = self.images.cluster();
        let cluster =
            cluster.ok_or_else(|| unreachable("this host is in no cluster".to_owned()))?;
        let connected = upgrade::connect(host.address, &cluster.token, FILE_BLOCKS).await;
        Ok(Box::new(connected.map_err(|error| unreachable(error.message))?))
    }

    fn expelled(&self, host: &PeerHost) {
        self.images.expel(host);
    }
}
