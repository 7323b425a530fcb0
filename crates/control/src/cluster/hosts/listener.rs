//! The listener to which other hosts report: HTTP on an address, with the token of the cluster.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{delete, post};
use snowmelt_rpc::server::{self, Ending};
use snowmelt_rpc::{Problem, Token, admit};
use snowmelt_tasks::{TaskHost, remote};
use snowmelt_types::{Code, ErrorReport, HostName};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::Hosts;

/// Binds the address before anything else is started.
pub(crate) fn bind(address: SocketAddr) -> Result<std::net::TcpListener, ErrorReport> {
    std::net::TcpListener::bind(address).map_err(|error| {
        let message = format!("cannot listen at {address}: {error}");
        ErrorReport::new(Code::OPTION, message)
            .hint("give an address of this machine and a port that is free")
    })
}

/// Returns the routes of the second table in [`snowmelt_api`], and the outputs and streams of tasks
/// on this host, for tasks on others. Call it in the runtime that is to serve these.
pub(crate) fn router(hosts: Hosts, host: TaskHost, token: Token) -> Router {
    let exchange = remote::routes::exchange_only(host, token.clone());
    Router::new()
        .route("/v1/hosts", post(join))
        .route("/v1/hosts/{name}", delete(leave))
        .layer(axum::middleware::from_fn_with_state(token, admit))
        .with_state(hosts)
        .merge(exchange)
}

async fn join(State(hosts): State<Hosts>, body: Bytes) -> Result<StatusCode, Problem> {
    let join = serde_json::from_slice(&body).map_err(|error| {
        let message = format!("the host and control speak different versions: {error}");
        ErrorReport::new(Code::PROTOCOL, message)
    })?;
    hosts.join(join)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn leave(State(hosts): State<Hosts>, Path(name): Path<String>) -> StatusCode {
    if let Ok(name) = HostName::try_from(name) {
        hosts.leave(&name);
    }
    StatusCode::NO_CONTENT
}

/// Serves until it is asked to end.
pub(crate) async fn serve(
    listener: std::net::TcpListener,
    router: Router,
    shutdown: CancellationToken,
) -> Result<(), ErrorReport> {
    let failed = |error: std::io::Error| {
        ErrorReport::new(Code::INTERNAL, format!("cannot serve hosts: {error}"))
    };
    listener.set_nonblocking(true).map_err(failed)?;
    let listener = TcpListener::from_std(listener).map_err(failed)?;
    // Other hosts notice immediately that control ends, and need no answer any more.
    let ending = Ending { asked: shutdown.clone(), over: shutdown };
    server::serve(listener, router, server::NETWORK, ending).await;
    Ok(())
}
