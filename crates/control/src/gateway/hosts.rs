//! The hosts of the cluster over HTTP, and which of them get new work.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use snowmelt_rpc::body::json;
use snowmelt_types::{Code, ErrorReport, HostName};

use super::answers::HandlerResult;
use crate::access::identity::Identity;
use crate::platform::GatewayPlatform;

/// Returns the routes of hosts.
pub(crate) fn router(platform: Arc<GatewayPlatform>) -> Router {
    Router::new()
        .route("/v1/hosts", get(list))
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

async fn set(platform: &GatewayPlatform, name: &HostName, drained: bool) -> HandlerResult {
    platform.functions.records().set_drained(name, drained).await?;
    platform.hosts.set_drained(name, drained);
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn parse(name: String) -> Result<HostName, ErrorReport> {
    let no_name = |_| ErrorReport::new(Code::HOST_UNKNOWN, "that is not the name of a host");
    HostName::try_from(name).map_err(no_name)
}
