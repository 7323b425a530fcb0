//! Leases by the API: a request leaves HTTP, and its connection carries one lease.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::routing::get;
use snowmelt_rpc::upgrade::Incoming;

use super::answers::Answer;
use crate::access::identity::Identity;
use crate::platform::Platform;

/// Returns the route of leases.
pub(super) fn router(platform: Arc<Platform>) -> Router {
    Router::new().route("/v1/leases", get(lease)).with_state(platform)
}

async fn lease(
    State(platform): State<Arc<Platform>>,
    identity: Identity,
    request: Request,
) -> Answer {
    let (answer, incoming) = Incoming::of(request)?;
    platform.leases.relay(incoming, identity)?;
    Ok(answer)
}
