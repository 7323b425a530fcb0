//! The connections between hosts of a cluster for blocks of images and files.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use snowmelt_image::peer::{LinkDamage, PeerHost, PeerLink};
use snowmelt_rpc::checksum_errors::is_damage;
use snowmelt_rpc::{Credential, HostStream, HostTarget, Meant, upgrade};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// An encrypted connection, which finds damaged bytes before they are compared with a digest.
#[derive(Debug)]
struct EncryptedLink(HostStream);

impl AsyncRead for EncryptedLink {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let damaged = |error: io::Error| match is_damage(&error) {
            true => io::Error::new(error.kind(), LinkDamage),
            false => error,
        };
        Pin::new(&mut self.0).poll_read(context, to).map_err(damaged)
    }
}

impl AsyncWrite for EncryptedLink {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

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
        return Ok(Box::new(EncryptedLink(connected)));
    }
    // Each block is verified by its digest.
    let connected = connected.into_unverified();
    Ok(Box::new(connected.map_err(|error| unreachable(error.to_string()))?))
}
