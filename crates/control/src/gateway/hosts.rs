//! The hosts of the cluster over HTTP, and which of them get new work.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use snowmelt_rpc::body::json;
use snowmelt_types::{Code, ErrorReport, HostName};

use super::answers::Answer;
use crate::access::identity::Identity;
use crate::platform::Platform;

/// Returns the routes of hosts.
pub(crate) fn router(platform: Arc<Platform>) -> Router {
    Router::new()
        .route("/v1/hosts", get(list))
        .route("/v1/hosts/{host}/drain", post(drain).delete(undrain))
        .with_state(platform)
}

async fn list(State(platform): State<Arc<Platform>>) -> Answer {
    json(StatusCode::OK, &platform.functions.placements().list())
}

async fn drain(
    State(platform): State<Arc<Platform>>,
    identity: Identity,
    Path(name): Path<String>,
) -> Answer {
    identity.check_operator("drain hosts")?;
    let name = parse(name)?;
    platform.hosts.find(&name)?;
    set(&platform, &name, true).await
}

/// Gives a host new work again. The host may be gone: it may come again.
async fn undrain(
    State(platform): State<Arc<Platform>>,
    identity: Identity,
    Path(name): Path<String>,
) -> Answer {
    identity.check_operator("drain hosts")?;
    let name = parse(name)?;
    if !platform.hosts.is_drained(&name) {
        platform.hosts.find(&name)?;
    }
    set(&platform, &name, false).await
}

async fn set(platform: &Platform, name: &HostName, drained: bool) -> Answer {
    platform.functions.records().set_drained(name, drained).await?;
    platform.hosts.set_drained(name, drained);
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn parse(name: String) -> Result<HostName, ErrorReport> {
    let no_name = |_| ErrorReport::new(Code::HOST_UNKNOWN, "that is not the name of a host");
    HostName::try_from(name).map_err(no_name)
}
