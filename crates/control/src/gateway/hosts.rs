//! The hosts of the cluster over HTTP, and which of them get new work.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{delete, get, post};
use snowmelt_api::JoinTokenRequest;
use snowmelt_rpc::body::{self, RequestBody, json};
use snowmelt_types::{Code, ErrorReport, HostName};

use super::answers::HandlerResult;
use crate::access::identity::Identity;
use crate::cluster::authority::ClusterAuthority;
use crate::platform::GatewayPlatform;

/// Returns the routes of hosts.
pub(crate) fn router(platform: Arc<GatewayPlatform>) -> Router {
    Router::new()
        .route("/v1/hosts", get(list))
        .route("/v1/hosts/{host}", delete(remove))
        .route("/v1/join-tokens", post(make_token))
        .route("/v1/hosts/{host}/drain", post(drain).delete(undrain))
        .with_state(platform)
}

async fn list(State(platform): State<Arc<GatewayPlatform>>) -> HandlerResult {
    json(StatusCode::OK, &platform.functions.placements().list())
}

async fn drain(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    Path(name): Path<String>,
) -> HandlerResult {
    identity.check_operator("drain hosts")?;
    let name = parse(name)?;
    platform.hosts.find(&name)?;
    set(&platform, &name, true).await
}

/// Gives a host new work again. The host may be gone: it may come again.
async fn undrain(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    Path(name): Path<String>,
) -> HandlerResult {
    identity.check_operator("drain hosts")?;
    let name = parse(name)?;
    if !platform.hosts.is_drained(&name) {
        platform.hosts.find(&name)?;
    }
    set(&platform, &name, false).await
}

async fn make_token(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    RequestBody(body): RequestBody,
) -> HandlerResult {
    identity.check_operator("let hosts join")?;
    let ask: JoinTokenRequest = body::parse(&body)?;
    json(StatusCode::CREATED, &authority(&platform)?.make_token(ask).await?)
}

/// Removes a host from the cluster at once, whatever runs there.
async fn remove(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    Path(name): Path<String>,
) -> HandlerResult {
    identity.check_operator("remove hosts")?;
    let name = parse(name)?;
    authority(&platform)?.remove(&name).await?;
    platform.hosts.leave(&name);
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn authority(platform: &GatewayPlatform) -> Result<&ClusterAuthority, ErrorReport> {
    platform.authority.as_ref().ok_or_else(|| {
        let plain = platform.hosts.may_grow();
        let message = match plain {
            true => "the hosts of this cluster share a token: they cannot be told apart",
            false => "this platform takes no hosts",
        };
        ErrorReport::new(Code::OPTION, message).hint(match plain {
            true => "change the token on all other hosts, or start the cluster without --plaintext",
            false => "start it with `snowmelt up --listen ADDRESS`",
        })
    })
}

async fn set(platform: &GatewayPlatform, name: &HostName, drained: bool) -> HandlerResult {
    platform.functions.records().set_drained(name, drained).await?;
    platform.hosts.set_drained(name, drained);
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn parse(name: String) -> Result<HostName, ErrorReport> {
    let no_name = |_| ErrorReport::new(Code::HOST_UNKNOWN, "that is not the name of a host");
    HostName::try_from(name).map_err(no_name)
}
