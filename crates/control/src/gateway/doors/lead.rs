//! Requests to a control among several that share a store: they are answered only while it is sure
//! that this one leads, because what it knows in memory may be old otherwise.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use snowmelt_rpc::Problem;
use snowmelt_store::etcd::LeadWatch;
use snowmelt_types::{ErrorReport, Report};

/// The paths that concern this process alone, and are served also while it is not sure.
const OWN: [&str; 2] = ["/v1/status", "/v1/shutdown"];

/// Lets a request pass once no other control leads, or refuses it.
pub(super) async fn led(
    State(lead): State<Option<LeadWatch>>,
    request: Request,
    next: Next,
) -> Response {
    let Some(lead) = lead.filter(|_| !OWN.contains(&request.uri().path())) else {
        return next.run(request).await;
    };
    match lead.sure().await {
        Ok(()) => next.run(request).await,
        Err(error) => {
            let report = ErrorReport { retryable: true, ..error.report() };
            Problem { status: StatusCode::SERVICE_UNAVAILABLE, report }.into_response()
        }
    }
}
