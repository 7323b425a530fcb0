//! Requests on files of UDFs: which contents have to be sent, and the contents themselves.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::post;
use snowmelt_rpc::body::{self, json};

use super::answers::HandlerResult;
use crate::access::identity::Identity;
use crate::platform::GatewayPlatform;

/// Returns the routes of files of UDFs.
pub(super) fn router(platform: Arc<GatewayPlatform>) -> Router {
    Router::new()
        .route("/v1/files", post(missing))
        .route("/v1/files/{digest}", post(keep))
        .with_state(platform)
}

async fn missing(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    body::RequestBody(body): body::RequestBody,
) -> HandlerResult {
    let asked = body::parse(&body)?;
    json(StatusCode::OK, &platform.udfs.missing_files(&identity.tenant, asked).await?)
}

async fn keep(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    Path(digest): Path<String>,
    request: Request,
) -> HandlerResult {
    let bytes = sent_bytes(&request);
    platform.disk.check(&identity.tenant, bytes).await?;
    platform.udfs.keep_file(&identity.tenant, &digest, request.into_body()).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Returns the length of a body, if its sender says it.
fn sent_bytes(request: &Request) -> u64 {
    let length = request.headers().get(header::CONTENT_LENGTH);
    length.and_then(|length| length.to_str().ok()?.parse().ok()).unwrap_or_default()
}
