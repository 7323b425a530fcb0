//! Answers whether the server lives and whether it can take work, for supervisors and load
//! balancers.
//!
//! Invariant: the answers name nothing of the machine and of tenants, so the TLS address gives them
//! to clients without a token.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use snowmelt_rpc::Problem;
use snowmelt_types::{Code, ErrorReport};

use crate::platform::GatewayPlatform;

/// Returns the routes `/healthz` and `/readyz`.
pub(super) fn router(platform: Arc<GatewayPlatform>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .method_not_allowed_fallback(not_allowed)
        .with_state(platform)
}

async fn not_allowed() -> (StatusCode, Problem) {
    let report = ErrorReport::new(Code::REQUEST_UNKNOWN, "health is only asked, with GET");
    (StatusCode::METHOD_NOT_ALLOWED, report.into())
}

async fn readyz(State(platform): State<Arc<GatewayPlatform>>) -> (StatusCode, &'static str) {
    let spawner = platform.node.spawner();
    let not_ready = if platform.shutdown.is_cancelled() {
        "the server is about to end\n"
    } else if platform.lead.as_ref().is_some_and(|lead| !lead.watch.is_sure()) {
        "the store does not say that this control leads\n"
    } else if spawner.failure.is_some() {
        "the spawner has failed\n"
    } else if spawner.processes.is_empty() {
        "the spawner is being started\n"
    } else {
        return (StatusCode::OK, "ready\n");
    };
    (StatusCode::SERVICE_UNAVAILABLE, not_ready)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::extract::Request;
    use http_body_util::BodyExt;
    use tower_service::Service;

    use super::*;
    use crate::platform::rig::{IdlePlatform, idle_platform};

    async fn asked(router: &mut Router, path: &str) -> (u16, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = router.call(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_server_that_is_about_to_end_lives_and_is_not_ready() {
        let IdlePlatform { platform, .. } = &idle_platform().await;
        let mut router = router(Arc::clone(platform));
        assert_eq!(asked(&mut router, "/healthz").await, (200, "ok\n".to_owned()));
        assert_eq!(asked(&mut router, "/readyz").await, (200, "ready\n".to_owned()));
        platform.shutdown.cancel();
        assert_eq!(asked(&mut router, "/healthz").await.0, 200);
        let (status, why) = asked(&mut router, "/readyz").await;
        assert_eq!((status, why.as_str()), (503, "the server is about to end\n"));
    }
}
