//! The connections between hosts of a cluster for blocks of images and files.

use snowmelt_image::peer::{PeerHost, PeerLink};
use snowmelt_rpc::{Token, upgrade};

/// Connects to another host at the path `path`, which names what that host serves on the
/// connection.
pub(crate) async fn connect(
    token: Option<&Token>,
    host: &PeerHost,
    path: &str,
) -> snowmelt_image::Result<Box<dyn PeerLink>> {
    let unreachable = |reason: String| snowmelt_image::Error::Unreachable {
        what: format!("the host {host}"),
        reason,
        after: None,
    };
    let token = token.ok_or_else(|| unreachable("this host is in no cluster".to_owned()))?;
    let connected = upgrade::connect(host.address, token, path).await;
    let connected = connected.map_err(|error| unreachable(error.message))?;
    // Each block is verified by its digest, and the daemon serves the connection itself.
    let connected = connected.into_unverified();
    Ok(Box::new(connected.map_err(|error| unreachable(error.to_string()))?))
}
