//! The listeners of a server for its clients, of this machine and of others.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use snowmelt_node::Node;
use snowmelt_rpc::server::{self, Ending};
use snowmelt_types::{Code, ErrorReport, Report};
use tokio::net::UnixListener;

use super::Remote;
use crate::gateway::{self, Door};
use crate::platform::GatewayPlatform;

/// Returns the socket of the lease service, beside that of the API.
pub(super) fn lease_socket(socket: &Path) -> PathBuf {
    socket.with_extension("lease")
}

/// Serves the clients of this machine.
pub(super) async fn serve_connections(
    listener: std::os::unix::net::UnixListener,
    router: axum::Router,
    ending: Ending,
) -> Result<(), ErrorReport> {
    let failed =
        |error: std::io::Error| ErrorReport::new(Code::INTERNAL, format!("cannot serve: {error}"));
    let listening = listener.set_nonblocking(true).and_then(|()| UnixListener::from_std(listener));
    server::serve(listening.map_err(failed)?, router, server::LOCAL, ending).await;
    Ok(())
}

/// Serves the clients of other hosts, if there is an address for them.
pub(super) async fn serve_others(
    remote: Option<(std::net::TcpListener, Remote)>,
    platform: &Arc<GatewayPlatform>,
    ending: &Ending,
) -> Result<(), ErrorReport> {
    let Some((listener, Remote { certificate, files, tokens, issuers, .. })) = remote else {
        return Ok(());
    };
    tokio::spawn(files.follow(certificate.clone(), ending.over.clone()));
    let router = gateway::router(Arc::clone(platform), Door::Network(tokens, issuers));
    gateway::remote_clients::serve(listener, certificate, router, ending.clone()).await
}

/// Ends all sandboxes of a server, and removes its sockets.
pub(super) async fn end(socket: &Path, node: &Node) -> Result<(), ErrorReport> {
    let stopped = node.stop().await.map_err(|error| error.report());
    let _ = std::fs::remove_file(socket);
    let _ = std::fs::remove_file(lease_socket(socket));
    stopped
}
