//! The identifier and the span of a request that a server receives.

use axum::extract::{MatchedPath, Request};
use axum::http::HeaderValue;
use axum::middleware::Next;
use axum::response::Response;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::export::SPANS;
use super::{Context, REQUEST_ID, new_span_id};
use crate::problem::ErrorCode;

/// Middleware that gives each request its identifier, its spans, and the response its header.
pub async fn identify(request: Request, next: Next) -> Response {
    let received = Context::received(request.headers());
    let id = received.id;
    let log = tracing::info_span!(
        "request",
        %id,
        method = %request.method(),
        path = request.uri().path(),
    );
    let (context, span) = recorded(received, &request);
    // The exported one is the inner one: handlers add attributes to the current span.
    let answered = next.run(request).instrument(span.clone()).instrument(log);
    let mut response = context.scope(answered).await;
    describe(&span, &response);
    if let Ok(value) = HeaderValue::from_str(&id.to_string()) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

/// Returns the span of a request, and the context of its handler.
fn recorded(received: Context, request: &Request) -> (Context, Span) {
    if !received.is_recorded() {
        return (received, Span::none());
    }
    let own = new_span_id();
    let method = request.method().as_str();
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let name = route.map_or_else(|| method.to_owned(), |route| format!("{method} {route}"));
    let span = received.enter(|| {
        tracing::debug_span!(
            target: SPANS,
            parent: None,
            "request",
            span_id = own,
            otel.name = name,
            otel.kind = "server",
            otel.status_code = Empty,
            http.request.method = method,
            http.route = route,
            http.response.status_code = Empty,
            url.path = request.uri().path(),
            url.scheme = "http",
            "error.type" = Empty,
            snowmelt.tenant = Empty,
        )
    });
    (Context { span: Some(own), ..received }, span)
}

fn describe(span: &Span, response: &Response) {
    let status = response.status();
    span.record("http.response.status_code", status.as_u16());
    if let Some(ErrorCode(code)) = response.extensions().get() {
        span.record("error.type", code.as_str());
    }
    // A refusal is the fault of the sender, and the server has done what it should.
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
}
