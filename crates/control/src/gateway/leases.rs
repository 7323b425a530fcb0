//! Leases by the API: a request leaves HTTP, and its connection carries one lease.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::routing::get;
use snowmelt_rpc::upgrade::Incoming;

use super::answers::HandlerResult;
use crate::access::identity::Identity;
use crate::access::key::KeyLife;
use crate::platform::GatewayPlatform;

/// Returns the route of leases.
pub(super) fn router(platform: Arc<GatewayPlatform>) -> Router {
    Router::new().route("/v1/leases", get(lease)).with_state(platform)
}

async fn lease(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    request: Request,
) -> HandlerResult {
    // The user of a socket has no key that may end.
    let life = request.extensions().get::<KeyLife>().cloned().unwrap_or(KeyLife::Fixed(None));
    let (answer, incoming) = Incoming::of(request)?;
    platform.leases.relay(incoming, identity, life)?;
    Ok(answer)
}
