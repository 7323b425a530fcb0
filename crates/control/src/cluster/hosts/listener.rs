//! The listener to which other hosts report: HTTP on an address, for processes of the cluster and
//! hosts that join it.
//!
//! Invariant: a host speaks for itself alone, by the name in its certificate.

use std::net::SocketAddr;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Extension, Router};
use serde::de::DeserializeOwned;
use snowmelt_api::HostJoin;
use snowmelt_rpc::membership::PeerSlot;
use snowmelt_rpc::server::client_relay::{self, RelayEntrance};
use snowmelt_rpc::server::{self, Ending, HostListener};
use snowmelt_rpc::{Credential, Problem, admit, of_control};
use snowmelt_store::etcd::LeadWatch;
use snowmelt_tasks::{TaskHost, remote};
use snowmelt_types::{Code, ErrorReport, HostName};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::Hosts;
use super::http::{ControlClock, ReportTaken};
use crate::cluster::authority::{ClusterAuthority, JoinAsk};
use crate::now_ms;

/// Binds the address before anything else is started.
pub(crate) fn bind(address: SocketAddr) -> Result<std::net::TcpListener, ErrorReport> {
    std::net::TcpListener::bind(address).map_err(|error| {
        let message = format!("cannot listen at {address}: {error}");
        ErrorReport::new(Code::OPTION, message)
            .hint("give an address of this machine and a port that is free")
    })
}

/// The longest request to join, in bytes. Nobody has shown anything before it.
const JOIN_BYTES: usize = 16 << 10;

/// The parts of control that hosts ask.
#[derive(Clone)]
struct Parts {
    hosts: Hosts,
    authority: Option<ClusterAuthority>,
    lead: Option<LeadWatch>,
}

/// Returns the routes of the second table in [`snowmelt_api`], and the outputs and streams of tasks
/// on this host, for tasks on others. Call it in the runtime that is to serve these.
pub(crate) fn router(
    hosts: Hosts,
    authority: Option<ClusterAuthority>,
    lead: Option<LeadWatch>,
    host: TaskHost,
    credential: &Credential,
    clients: Option<RelayEntrance>,
) -> Router {
    let exchange = remote::routes::exchange_only(host, credential.clone());
    let parts = Parts { hosts, authority, lead };
    let of_controls = Router::new()
        .route(client_relay::PATH, get(relay_client))
        .layer(from_fn_with_state(credential.clone(), of_control))
        .with_state(clients);
    Router::new()
        .route("/v1/hosts", post(join))
        .route("/v1/clock", get(clock))
        .route("/v1/hosts/{name}", delete(leave))
        .route("/v1/hosts/{name}/certificate", post(renew))
        .with_state(parts.clone())
        .merge(of_controls)
        .layer(from_fn_with_state(credential.clone(), admit))
        // A host that has no certificate yet.
        .route("/v1/join", post(first_certificate).layer(DefaultBodyLimit::max(JOIN_BYTES)))
        .with_state(parts)
        .merge(exchange)
}

async fn join(
    State(parts): State<Parts>,
    peer: Option<Extension<PeerSlot>>,
    body: Bytes,
) -> Result<Response, Problem> {
    let join: HostJoin = parse(&body)?;
    is_own(peer.as_deref(), &join.name)?;
    parts.hosts.join(join)?;
    let is_sure = parts.lead.as_ref().is_none_or(LeadWatch::is_sure);
    let protocol = snowmelt_rpc::protocol();
    let taken = ReportTaken { removed: parts.hosts.removed(), is_sure, protocol };
    Ok(axum::Json(taken).into_response())
}

async fn clock() -> axum::Json<ControlClock> {
    axum::Json(ControlClock { at_ms: now_ms() })
}

async fn leave(
    State(parts): State<Parts>,
    peer: Option<Extension<PeerSlot>>,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    if let Ok(name) = HostName::try_from(name) {
        is_own(peer.as_deref(), &name)?;
        parts.hosts.leave(&name);
    }
    Ok(StatusCode::NO_CONTENT)
}

async fn renew(
    State(parts): State<Parts>,
    peer: Option<Extension<PeerSlot>>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Response, Problem> {
    let name = HostName::try_from(name).map_err(|why| ErrorReport::new(Code::PROTOCOL, why))?;
    is_own(peer.as_deref(), &name)?;
    let shown = peer.as_deref().and_then(PeerSlot::certificate).map_or(0, |shown| shown.serial);
    let certified = parts.authority()?.renew(&name, shown, &parse(&body)?).await?;
    Ok(axum::Json(certified).into_response())
}

async fn first_certificate(State(parts): State<Parts>, body: Bytes) -> Result<Response, Problem> {
    let ask: JoinAsk = parse(&body)?;
    let is_there = parts.hosts.has(&ask.name);
    let certified = parts.authority()?.join(&ask, is_there).await?;
    Ok(axum::Json(certified).into_response())
}

/// Takes the connection of a client from a control that stands by.
async fn relay_client(
    State(clients): State<Option<RelayEntrance>>,
    request: Request,
) -> Result<Response, Problem> {
    let Some(clients) = clients else {
        let message = "this control has no address for clients of other hosts";
        let report = ErrorReport::new(Code::HOST_REFUSED, message);
        return Err(report.hint("give all controls an address with --tls-listen").into());
    };
    clients.take(request)
}

impl Parts {
    fn authority(&self) -> Result<&ClusterAuthority, ErrorReport> {
        self.authority.as_ref().ok_or_else(|| {
            let message = "this cluster has no certificates: its hosts share a token";
            ErrorReport::new(Code::HOST_REFUSED, message)
                .hint("start the host with --plaintext and --token-file, as control")
        })
    }
}

/// Refuses a host that speaks for another one. Without encryption hosts cannot be told apart.
fn is_own(peer: Option<&PeerSlot>, name: &HostName) -> Result<(), ErrorReport> {
    match peer.and_then(PeerSlot::certificate) {
        Some(peer) if peer.name != *name => {
            let message = format!("the host `{}` speaks for the host `{name}`", peer.name);
            Err(ErrorReport::new(Code::HOST_REFUSED, message))
        }
        _ => Ok(()),
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ErrorReport> {
    serde_json::from_slice(body).map_err(|error| {
        let message = format!("the host and control speak different versions: {error}");
        ErrorReport::new(Code::PROTOCOL, message)
    })
}

/// Serves until it is asked to end.
pub(crate) async fn serve(
    listener: std::net::TcpListener,
    router: Router,
    credential: Credential,
    shutdown: CancellationToken,
) -> Result<(), ErrorReport> {
    let failed = |error: std::io::Error| {
        ErrorReport::new(Code::INTERNAL, format!("cannot serve hosts: {error}"))
    };
    listener.set_nonblocking(true).map_err(failed)?;
    let listener = TcpListener::from_std(listener).map_err(failed)?;
    let listener = HostListener::new(listener, credential);
    // Other hosts notice immediately that control ends, and need no answer any more.
    let ending = Ending { asked: shutdown.clone(), over: shutdown };
    server::serve(listener, router, server::NETWORK, ending).await;
    Ok(())
}
