//! Quotas over HTTP: a tenant sees its own, operators set them.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Extension, Router};
use snowmelt_api::QuotaRequest;
use snowmelt_rpc::body::{self, json};

use super::answers::HandlerResult;
use crate::access::identity::Identity;
use crate::platform::GatewayPlatform;
use crate::reports::audit::AuditNote;

/// Returns the routes of quotas.
pub(super) fn router(platform: Arc<GatewayPlatform>) -> Router {
    Router::new().route("/v1/quotas", get(list).post(set).delete(reset)).with_state(platform)
}

async fn list(State(platform): State<Arc<GatewayPlatform>>, identity: Identity) -> HandlerResult {
    // Those of others were measured lately.
    platform.disk.measure(&identity.tenant).await?;
    json(StatusCode::OK, &platform.quotas.list(&identity).await?)
}

async fn set(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    note: Option<Extension<AuditNote>>,
    body::RequestBody(body): body::RequestBody,
) -> HandlerResult {
    let request: QuotaRequest = body::parse(&body)?;
    if let Some(Extension(note)) = note {
        let limits = serde_json::to_string(&request.limits).unwrap_or_default();
        note.detail("limits", &limits);
    }
    json(StatusCode::OK, &platform.quotas.set(&identity.tenant, request).await?)
}

async fn reset(State(platform): State<Arc<GatewayPlatform>>, identity: Identity) -> HandlerResult {
    platform.quotas.reset(&identity.tenant).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
