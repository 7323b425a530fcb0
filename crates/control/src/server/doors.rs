//! The listeners of a server for its clients, of this machine and of others.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use snowmelt_node::Node;
use snowmelt_rpc::server::client_relay::{RelayEntrance, RelayedClients};
use snowmelt_rpc::server::{self, Ending};
use snowmelt_tasks::TaskHost;
use snowmelt_types::{Code, ErrorReport, Report};
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

use super::{Remote, ServerSettings};
use crate::cluster::hosts::{in_time, listener};
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

/// Serves the hosts of a cluster, if there is an address for them. Other controls bring their
/// clients by the entrance.
pub(super) async fn serve_hosts(
    listener: Option<std::net::TcpListener>,
    platform: &GatewayPlatform,
    host: TaskHost,
    clients: Option<RelayEntrance>,
    over: CancellationToken,
) -> Result<(), ErrorReport> {
    let hosts = platform.hosts.clone();
    let (Some(listener), Some(credential)) = (listener, hosts.credential().cloned()) else {
        return Ok(());
    };
    let authority = platform.authority.clone();
    let lead = platform.lead.as_ref().map(|lead| lead.watch.clone());
    let router = listener::router(hosts, authority, lead, host, &credential, clients);
    // Bursts that are given time need their hosts.
    in_time("hosts", move || listener::serve(listener, router, credential, over)).await?
}

/// Serves the clients of other hosts, if there is an address for them: those that connect here, and
/// those that connect to other controls.
pub(super) async fn serve_others(
    remote: Option<(std::net::TcpListener, Remote)>,
    relayed: RelayedClients,
    settings: &ServerSettings,
    platform: &Arc<GatewayPlatform>,
    ending: &Ending,
) -> Result<(), ErrorReport> {
    let Some((listener, Remote { certificate, tokens, issuers, .. })) = remote else {
        return Ok(());
    };
    let shared = settings.shared_folder().to_owned();
    let has_standbys = settings.store.is_some();
    tokio::spawn(certificate.clone().follow(shared.clone(), ending.over.clone()));
    tokio::spawn(certificate.clone().order(shared, has_standbys, ending.over.clone()));
    let certificate = certificate.shown();
    let router = gateway::router(Arc::clone(platform), Door::Network(tokens, issuers));
    let relayed = async {
        server::serve(relayed, router.clone(), server::TENANTS, ending.clone()).await;
        Ok(())
    };
    let own = gateway::remote_clients::serve(listener, certificate, router.clone(), ending.clone());
    tokio::try_join!(relayed, own).map(|_| ())
}

/// Ends all sandboxes of a server, and removes its sockets.
pub(super) async fn end(socket: &Path, node: &Node) -> Result<(), ErrorReport> {
    let stopped = node.stop().await.map_err(|error| error.report());
    let _ = std::fs::remove_file(socket);
    let _ = std::fs::remove_file(lease_socket(socket));
    stopped
}
