//! The address for clients on other hosts, over TLS. Each request has a key.

use axum::Router;
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
    let failed = |error: std::io::Error| {
        ErrorReport::new(Code::INTERNAL, format!("cannot serve other hosts: {error}"))
    };
    listener.set_nonblocking(true).map_err(failed)?;
    let listener = TlsListener::new(TcpListener::from_std(listener).map_err(failed)?, &certificate);
    server::serve(listener, router, server::TENANTS, ending).await;
    Ok(())
}
