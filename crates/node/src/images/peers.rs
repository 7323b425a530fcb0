//! Images that this host reads from other hosts and serves to them: the node's side, and how the
//! daemon connects.
//!
//! Invariant: another host's connection has shown the token of the cluster before the daemon gets
//! it; the daemon alone reads what comes over it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use snowmelt_image::peer::{Connect, PeerHost, PeerLink};
use snowmelt_kernel::packet;
use snowmelt_rpc::{HostStream, Token};
use snowmelt_types::HostName;

use super::daemon::sharing::SharedContent;
use super::host_connection::connect;
use super::keeper::{ImageKeeper, Keeper};
use super::message::{DaemonRequest, Notice};
use super::packets::{failed, say_to};
use super::tree_place::{HeldImage, OwnCluster, TreePlace};
use crate::Result;

/// The path of the request with which a host asks another for blocks of images.
pub const BLOCKS: &str = "/v1/images/blocks";

/// How long the daemon may take to accept a connection.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(5);

impl ImageKeeper {
    /// Lets this host read blocks of images from other hosts of a cluster, and serve them to hosts
    /// that know the cluster's token. `control` is the address where hosts report; `None` on
    /// control's own host.
    pub fn join_cluster(&self, token: Token, control: Option<SocketAddr>) {
        // A host is in one cluster as long as it runs.
        let _ = self.cluster.set(OwnCluster { token, control });
    }

    /// Returns the hosts that sent wrong blocks of images to this one.
    pub fn expelled_hosts(&self) -> Vec<HostName> {
        self.noticed.expelled()
    }

    /// Makes the daemon read an image from the hosts of a new place, if it has the image mounted.
    pub async fn move_to(self: &Arc<Self>, place: TreePlace) -> Result<()> {
        let (Some(cluster), Some(keeper)) = (self.cluster.get(), self.running()) else {
            return Ok(());
        };
        let place = cluster.place(&place);
        keeper.keep_place(&place);
        ask(&keeper, DaemonRequest::Move(place)).await.map(drop)
    }

    /// Returns the images that this host has a place for, and how many bytes of them it has read
    /// and sent.
    pub async fn held(self: &Arc<Self>) -> Result<Vec<HeldImage>> {
        let Some(keeper) = self.running() else { return Ok(Vec::new()) };
        let said = ask(&keeper, DaemonRequest::Bytes).await?;
        let held: Vec<SharedContent> = serde_json::from_slice(&said)
            .map_err(|error| failed("know what was read of images")(error.into()))?;
        Ok(held.into_iter().map(HeldImage::from).collect())
    }

    /// Hands a connection of another host to the daemon, which serves it.
    pub async fn serve_host(self: &Arc<Self>, stream: HostStream) {
        let images = Arc::clone(self);
        let given = tokio::task::spawn_blocking(move || images.give(stream)).await;
        match given {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "a host gets no blocks of images"),
            Err(error) => tracing::warn!(%error, "a host gets no blocks of images"),
        }
    }

    fn give(&self, stream: HostStream) -> Result<()> {
        let socket = self.started()?.socket().to_owned();
        let given = || -> io::Result<()> {
            let stream = OwnedFd::from(stream.into_unverified()?.into_std()?);
            say_to(&socket, &DaemonRequest::Serve, &[stream.as_fd()], ACCEPT_TIMEOUT).map(drop)
        };
        given().map_err(failed("serve another host"))
    }
}

async fn ask(keeper: &Arc<Keeper>, ask: DaemonRequest) -> Result<Vec<u8>> {
    let socket = keeper.socket().to_owned();
    let asking = move || say_to(&socket, &ask, &[], ACCEPT_TIMEOUT);
    let asked = tokio::task::spawn_blocking(asking).await;
    let asked =
        asked.map_err(|error| failed("ask the daemon of images")(io::Error::other(error)))?;
    asked.map(|(said, _)| said).map_err(failed("ask the daemon of images"))
}

/// The means by which the daemon connects to other hosts.
pub(super) struct PeerDialer {
    token: Option<Token>,
    /// The control connection to the node.
    control: OwnedFd,
}

impl PeerDialer {
    /// Makes connections with `authorization`, the value of the header with the cluster's token;
    /// without it none can be opened.
    pub fn new(authorization: Option<&str>, control: OwnedFd) -> Self {
        let token = authorization.and_then(|text| text.strip_prefix("Bearer "));
        Self { token: token.and_then(|text| Token::new(text).ok()), control }
    }
}

#[async_trait]
impl Connect for PeerDialer {
    async fn connect(&self, host: &PeerHost) -> snowmelt_image::Result<Box<dyn PeerLink>> {
        connect(self.token.as_ref(), host, BLOCKS).await
    }

    fn expelled(&self, host: &PeerHost) {
        // A node that has ended needs no message.
        let notice = serde_json::to_vec(&Notice::Expelled(host.name.clone()));
        drop(notice.map(|said| packet::send(&self.control, &said, &[])));
    }
}
