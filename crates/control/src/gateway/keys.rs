//! Keys over HTTP: who administers a tenant makes, lists, rotates and revokes them.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{delete, get, post};
use axum::{Extension, Router};
use snowmelt_api::KeyRotation;
use snowmelt_rpc::body::{self, json};

use super::answers::HandlerResult;
use crate::access::identity::Identity;
use crate::platform::GatewayPlatform;
use crate::reports::audit::AuditNote;

/// Returns the routes of keys.
pub(super) fn router(platform: Arc<GatewayPlatform>) -> Router {
    Router::new()
        .route("/v1/keys", get(list).post(make))
        .route("/v1/keys/{id}", delete(revoke))
        .route("/v1/keys/{id}/rotations", post(rotate))
        .with_state(platform)
}

async fn list(State(platform): State<Arc<GatewayPlatform>>, identity: Identity) -> HandlerResult {
    json(StatusCode::OK, &platform.keys.list(&identity).await?)
}

async fn make(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    note: Option<Extension<AuditNote>>,
    body::RequestBody(body): body::RequestBody,
) -> HandlerResult {
    let request = body::parse(&body)?;
    let made = platform.keys.make(&identity, request).await?;
    if let Some(Extension(note)) = note {
        note.object(&made.key.id);
        note.detail("role", &made.key.role.to_string());
    }
    json(StatusCode::CREATED, &made)
}

async fn revoke(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    Path(id): Path<String>,
) -> HandlerResult {
    platform.keys.revoke(&identity, &id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn rotate(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    Path(id): Path<String>,
    body::RequestBody(body): body::RequestBody,
) -> HandlerResult {
    let rotation = if body.is_empty() { KeyRotation::default() } else { body::parse(&body)? };
    json(StatusCode::CREATED, &platform.keys.rotate(&identity, &id, &rotation).await?)
}
