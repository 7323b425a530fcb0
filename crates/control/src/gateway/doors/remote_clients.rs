//! The address for clients on other hosts, over TLS. Each request has a key.

use axum::Router;
use snowmelt_rpc::server::client_relay::ClientRelay;
use snowmelt_rpc::server::{self, Ending};
use snowmelt_rpc::tls::{Certificate, TlsListener};
use snowmelt_types::{Code, ErrorReport};
use tokio::net::TcpListener;

/// Serves over TLS until the server is asked to end.
pub(crate) async fn serve(
    listener: std::net::TcpListener,
    certificate: Certificate,
    router: Router,
    ending: Ending,
) -> Result<(), ErrorReport> {
    server::serve(over_tls(listener, &certificate)?, router, server::TENANTS, ending).await;
    Ok(())
}

/// Carries connections to the control that leads, until the server is asked to end.
pub(crate) async fn relay(
    listener: std::net::TcpListener,
    certificate: Certificate,
    relay: ClientRelay,
    ending: Ending,
) -> Result<(), ErrorReport> {
    relay.serve(over_tls(listener, &certificate)?, server::TENANTS, ending).await;
    Ok(())
}

fn over_tls(
    listener: std::net::TcpListener,
    certificate: &Certificate,
) -> Result<TlsListener, ErrorReport> {
    let failed = |error: std::io::Error| {
        ErrorReport::new(Code::INTERNAL, format!("cannot serve other hosts: {error}"))
    };
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(TlsListener::new(TcpListener::from_std(listener).map_err(failed)?, certificate))
}
