//! The headers and the span of a request to another process.

use http::request::Builder;
use http::{Method, Response};
use tracing::Span;
use tracing::field::Empty;

use super::export::{Export, SPANS};
use super::{Context, REQUEST_ID, TRACEPARENT, new_span_id};
use crate::Endpoint;

/// A request that is being sent.
pub(crate) struct Outgoing {
    context: Context,
    pub span: Span,
}

impl Outgoing {
    /// Makes the request that this task sends for the request that it handles.
    pub fn new(method: &Method, path: &str, endpoint: &Endpoint) -> Self {
        let context = Context::current().unwrap_or_else(Context::without_request);
        if Context::current().is_none() || !context.is_recorded() {
            return Self { context, span: Span::none() };
        }
        let own = new_span_id();
        let path = path.split('?').next().unwrap_or_default();
        let (address, port, url) = match endpoint {
            Endpoint::Unix(_) | Endpoint::InProcess(_) => (endpoint.to_string(), None, None),
            Endpoint::Tls(server) => {
                (server.host().to_owned(), Some(server.port()), Some(format!("{server}{path}")))
            }
            Endpoint::Tcp(target) => {
                let at = target.address;
                (at.ip().to_string(), Some(at.port()), Some(format!("http://{at}{path}")))
            }
        };
        let span = tracing::debug_span!(
            target: SPANS,
            "request to a server",
            span_id = own,
            otel.name = method.as_str(),
            otel.kind = "client",
            otel.status_code = Empty,
            http.request.method = method.as_str(),
            http.response.status_code = Empty,
            url.path = path,
            url.full = url,
            server.address = address,
            server.port = port,
            "error.type" = Empty,
        );
        Self { context: Context { span: Some(own), ..context }, span }
    }

    /// Adds the header that identifies the request.
    pub fn identify(&self, request: Builder) -> Builder {
        let Context { id, span, is_sampled } = self.context;
        match span {
            Some(span) => request.header(TRACEPARENT, id.traceparent(span, is_sampled)),
            // No process has recorded anything: the server decides, and its span has no parent.
            None if is_sampled && Export::installed().is_none() => {
                request.header(REQUEST_ID, id.to_string())
            }
            None => request.header(TRACEPARENT, id.traceparent(new_span_id(), false)),
        }
    }

    /// Records the result of the request.
    pub fn describe<B, E>(&self, answered: &Result<Response<B>, E>) {
        let Ok(response) = answered else {
            self.span.record("error.type", "connection");
            self.span.record("otel.status_code", "ERROR");
            return;
        };
        let status = response.status();
        self.span.record("http.response.status_code", status.as_u16());
        if status.is_client_error() || status.is_server_error() {
            self.span.record("error.type", status.as_str());
            self.span.record("otel.status_code", "ERROR");
        }
    }
}
