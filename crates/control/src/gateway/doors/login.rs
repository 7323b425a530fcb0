//! The places where people log in: the issuers whose tokens the platform accepts. Whoever asks has no key yet.
//!
//! Invariant: the answer names nothing but issuers, clients without secrets and scopes.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use snowmelt_rpc::Problem;
use snowmelt_rpc::body::json;
use snowmelt_types::{Code, ErrorReport};

use crate::access::oidc::Issuers;
use crate::gateway::answers::HandlerResult;

/// Returns the route `/v1/login`.
pub(super) fn router(issuers: Arc<Issuers>) -> Router {
    Router::new()
        .route("/v1/login", get(offer))
        .method_not_allowed_fallback(not_allowed)
        .with_state(issuers)
}

async fn offer(State(issuers): State<Arc<Issuers>>) -> HandlerResult {
    json(StatusCode::OK, &issuers.offer())
}

async fn not_allowed() -> (StatusCode, Problem) {
    let report = ErrorReport::new(Code::REQUEST_UNKNOWN, "the places of logins are only asked for");
    (StatusCode::METHOD_NOT_ALLOWED, report.into())
}
