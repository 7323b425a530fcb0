//! Images that this host reads from other hosts and serves to them: the node's side, and how the
//! daemon connects.
//!
//! Invariant: another host has shown that it is of the cluster before the daemon gets its connection; the daemon alone reads what comes over it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use snowmelt_image::peer::{Connect, PeerHost, PeerLink};
use snowmelt_kernel::packet;
use snowmelt_rpc::membership::{Anonymous, CertificateText};
use snowmelt_rpc::{Credential, HostStream, Token};
use snowmelt_types::HostName;

use super::daemon::sharing::SharedContent;
use super::host_connection::{connect, named};
use super::keeper::{ImageKeeper, Keeper};
use super::message::{DaemonMember, DaemonRequest, Notice};
use super::packets::{failed, say_to};
use super::tree_place::{ControlAddress, HeldImage, OwnCluster, TreePlace};
use crate::Result;

/// The path of the request with which a host asks another for blocks of images.
pub const BLOCKS: &str = "/v1/images/blocks";

/// How long the daemon may take to accept a connection.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(5);

impl ImageKeeper {
    /// Lets this host read blocks of images from other hosts of a cluster, and serve them to hosts
    /// of it. `control` is the address where hosts report; `None` on
    /// control's own host.
    pub fn join_cluster(&self, credential: Credential, control: Option<ControlAddress>) {
        // A host is in one cluster as long as it runs.
        let _ = self.cluster.set(OwnCluster { credential, control });
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
        let descriptor = match stream.into_descriptor() {
            Ok(descriptor) => descriptor,
            Err(error) => return tracing::debug!(%error, "a host gets no blocks of images"),
        };
        let given = tokio::task::spawn_blocking(move || images.give(&descriptor)).await;
        match given {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "a host gets no blocks of images"),
            Err(error) => tracing::warn!(%error, "a host gets no blocks of images"),
        }
    }

    /// Tells the daemon the certificate that this host has now.
    pub async fn renew(self: &Arc<Self>) -> Result<()> {
        let text = self.cluster.get().and_then(|cluster| cluster.credential.text());
        let (Some(text), Some(keeper)) = (text, self.running()) else { return Ok(()) };
        ask(&keeper, DaemonRequest::Certificate(text)).await.map(drop)
    }

    fn give(&self, connection: &OwnedFd) -> Result<()> {
        let socket = self.started()?.socket().to_owned();
        let given = say_to(&socket, &DaemonRequest::Serve, &[connection.as_fd()], ACCEPT_TIMEOUT);
        given.map(drop).map_err(failed("serve another host"))
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
    credential: Option<Credential>,
    /// The control connection to the node.
    control: OwnedFd,
}

impl PeerDialer {
    /// Makes connections as this member of the cluster; none can be opened without it.
    pub fn new(member: Option<DaemonMember>, control: OwnedFd) -> Self {
        let credential = member.and_then(|member| match member {
            DaemonMember::Token(header) => {
                let token = Token::new(header.strip_prefix("Bearer ")?);
                Some(Credential::from(token.ok()?))
            }
            DaemonMember::Certificate(text) => Credential::certified(text, Anonymous::Refused).ok(),
        });
        Self { credential, control }
    }

    /// Shows another certificate from now on.
    pub fn renew(&self, text: CertificateText) {
        let renewed = self.credential.as_ref().map(|credential| credential.replace(text));
        if let Some(Err(error)) = renewed {
            tracing::warn!(error, "a certificate of this host cannot be used");
        }
    }
}

#[async_trait]
impl Connect for PeerDialer {
    async fn connect(&self, host: &PeerHost) -> snowmelt_image::Result<Box<dyn PeerLink>> {
        connect(self.credential.as_ref(), host, named(host)?, BLOCKS).await
    }

    fn expelled(&self, host: &PeerHost) {
        // A node that has ended needs no message.
        let notice = serde_json::to_vec(&Notice::Expelled(host.name.clone()));
        drop(notice.map(|said| packet::send(&self.control, &said, &[])));
    }
}
