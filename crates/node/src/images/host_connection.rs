//! The connections between hosts of a cluster for blocks of images and files.

use snowmelt_image::peer::{PeerHost, PeerLink};
use snowmelt_rpc::{Credential, HostTarget, Meant, upgrade};

/// Returns the process that a host of a tree is.
///
/// # Errors
/// The name is not that of a host.
pub(crate) fn named(host: &PeerHost) -> snowmelt_image::Result<Meant> {
    let name = host.name.parse().map_err(|reason: String| snowmelt_image::Error::Unreachable {
        what: format!("the host {host}"),
        reason,
        after: None,
    });
    name.map(Meant::Host)
}

/// Connects to another host at the path `path`, which names what that host serves on the
/// connection.
pub(crate) async fn connect(
    credential: Option<&Credential>,
    host: &PeerHost,
    meant: Meant,
    path: &str,
) -> snowmelt_image::Result<Box<dyn PeerLink>> {
    let unreachable = |reason: String| snowmelt_image::Error::Unreachable {
        what: format!("the host {host}"),
        reason,
        after: None,
    };
    let credential =
        credential.ok_or_else(|| unreachable("this host is in no cluster".to_owned()))?;
    let target = HostTarget { address: host.address, meant, credential: credential.clone() };
    let connected = upgrade::connect(&target, path).await;
    let connected = connected.map_err(|error| unreachable(error.message))?;
    if connected.is_encrypted() {
        return Ok(Box::new(connected));
    }
    // Each block is verified by its digest.
    let connected = connected.into_unverified();
    Ok(Box::new(connected.map_err(|error| unreachable(error.to_string()))?))
}
