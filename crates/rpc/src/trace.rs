//! The identifier of a request, from the first client through control to each host.
//!
//! It travels as the trace id of the `traceparent` header (W3C Trace Context), so that a proxy or a
//! client with tracing of its own keeps one trace. Each response has it as `x-request-id`.

use axum::extract::Request;
use axum::http::HeaderValue;
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument;
use uuid::Uuid;

/// The header of a request, as the W3C recommendation names it.
pub const TRACEPARENT: &str = "traceparent";
/// The header of a response.
pub const REQUEST_ID: &str = "x-request-id";

tokio::task_local! {
    static CURRENT: RequestId;
}

/// The trace id: 128 bits, not all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(u128);

impl RequestId {
    /// A new identifier. Later ones sort after earlier ones.
    pub fn new() -> Self {
        Self(Uuid::now_v7().as_u128())
    }

    /// The identifier of the request that this task handles.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(|id| *id).ok()
    }

    /// The identifier of the request that this task handles, or a new one.
    pub fn current_or_new() -> Self {
        Self::current().unwrap_or_default()
    }

    /// Runs a future as part of the request: its requests to other processes carry the identifier.
    pub async fn scope<F: Future>(self, future: F) -> F::Output {
        CURRENT.scope(self, future).await
    }

    /// The value of the `traceparent` header for a request to another process: version 00, the
    /// trace id, a parent id of this hop and the flag "sampled".
    pub fn traceparent(self) -> String {
        let parent = (Uuid::now_v7().as_u128() as u64).max(1);
        format!("00-{:032x}-{parent:016x}-01", self.0)
    }

    /// Reads a `traceparent` header; `None` if it does not conform to version 00 of the format.
    pub fn parse(header: &str) -> Option<Self> {
        let mut parts = header.split('-');
        let (version, trace, parent) = (parts.next()?, parts.next()?, parts.next()?);
        let hex = |text: &str, length| {
            text.len() == length
                && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        if !hex(version, 2) || version == "ff" || !hex(trace, 32) || !hex(parent, 16) {
            return None;
        }
        let id = u128::from_str_radix(trace, 16).ok()?;
        (id != 0).then_some(Self(id))
    }
}

impl Default for RequestId {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Middleware that gives each request its identifier, a tracing span, and the response its header.
pub async fn identify(request: Request, next: Next) -> Response {
    let header = request.headers().get(TRACEPARENT).and_then(|value| value.to_str().ok());
    let id = header.and_then(RequestId::parse).unwrap_or_default();
    let span = tracing::info_span!(
        "request",
        %id,
        method = %request.method(),
        path = request.uri().path(),
    );
    let mut response = id.scope(next.run(request).instrument(span)).await;
    if let Ok(value) = HeaderValue::from_str(&id.to_string()) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_it_writes_is_one_that_it_reads() {
        let id = RequestId::new();
        assert_eq!(RequestId::parse(&id.traceparent()), Some(id));
    }

    #[test]
    fn only_a_header_of_the_recommendation_is_accepted() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let header = format!("00-{trace}-00f067aa0ba902b7-01");
        assert_eq!(RequestId::parse(&header).unwrap().to_string(), trace);
        let zero = format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32));
        let upper = header.to_uppercase();
        for bad in ["", "00", "ff-", &header[..40], &zero, &upper, &format!("ff{}", &header[2..])] {
            assert_eq!(RequestId::parse(bad), None, "{bad}");
        }
    }

    #[tokio::test]
    async fn a_task_knows_the_request_that_it_handles() {
        assert_eq!(RequestId::current(), None);
        let id = RequestId::new();
        assert_eq!(id.scope(async { RequestId::current() }).await, Some(id));
    }
}
