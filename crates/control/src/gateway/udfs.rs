//! Requests on registered UDFs.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use serde::Deserialize;
use snowmelt_api::RegisterRequest;
use snowmelt_rpc::body::{self, json};
use snowmelt_types::{Code, ErrorReport};

use super::answers::HandlerResult;
use crate::access::identity::Identity;
use crate::platform::GatewayPlatform;

/// Returns the routes of registered UDFs.
pub(super) fn router(platform: Arc<GatewayPlatform>) -> Router {
    Router::new()
        .route("/v1/udfs", get(list).post(register))
        .route("/v1/udfs/{name}", get(show).delete(remove))
        .route("/v1/udfs/{name}/log", get(log))
        .with_state(platform)
}

async fn list(State(platform): State<Arc<GatewayPlatform>>, identity: Identity) -> HandlerResult {
    let mut listed = platform.udfs.list(&identity.tenant).await?;
    listed.retain(|udf| identity.permits_udf(&udf.name));
    json(StatusCode::OK, &listed)
}

async fn register(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    body::RequestBody(body): body::RequestBody,
) -> HandlerResult {
    let request: RegisterRequest = body::parse(&body)?;
    identity.check_udf_source(&request.source)?;
    platform.disk.check(&identity.tenant, body.len() as u64).await?;
    let permits = |name: &str| identity.check_udf_name(name);
    let registered = platform.udfs.register(&identity.tenant, request, &permits).await?;
    json(StatusCode::CREATED, &registered)
}

async fn show(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    Path(name): Path<String>,
) -> HandlerResult {
    json(StatusCode::OK, &platform.udfs.show(&identity.tenant, &name).await?)
}

async fn remove(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    Path(name): Path<String>,
) -> HandlerResult {
    platform.udfs.remove(&identity.tenant, &name).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[derive(Deserialize)]
struct LogQuery {
    tail: Option<u32>,
}

async fn log(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    Path(name): Path<String>,
    query: Result<Query<LogQuery>, QueryRejection>,
) -> HandlerResult {
    let Query(query) =
        query.map_err(|rejected| ErrorReport::new(Code::OPTION, rejected.body_text()))?;
    json(StatusCode::OK, &platform.udfs.log(&identity.tenant, &name, query.tail).await?)
}
