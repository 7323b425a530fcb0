//! The identifier of a request, from the first client through control to each host, and its spans.
//!
//! The identifier travels as the trace id of the `traceparent` header (W3C Trace Context), so that
//! a proxy or a client with tracing of its own keeps one trace. Each response has it as
//! `x-request-id`. A client that records no spans has no parent to name, and sends `x-request-id`
//! too.

mod client;
mod export;
mod server;

use http::HeaderMap;
use snowmelt_types::ErrorReport;
use tokio::task::JoinHandle;
use tracing::Span;
use uuid::Uuid;

pub(crate) use client::Outgoing;
pub use export::{Export, SPANS, Sampler};
pub use server::identify;

/// The header of a request, as the W3C recommendation names it.
pub const TRACEPARENT: &str = "traceparent";
/// The header of a response, and of a request without [`TRACEPARENT`].
pub const REQUEST_ID: &str = "x-request-id";

/// The flag of the header: the sender has recorded the request.
const SAMPLED: u8 = 1;

tokio::task_local! {
    static CURRENT: Context;
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
        Context::current().map(|context| context.id)
    }

    /// Runs a future as a request that begins here: its requests to other processes carry the
    /// identifier.
    pub async fn scope<F: Future>(self, future: F) -> F::Output {
        Context::begin(self).scope(future).await
    }

    /// The identifier as a number.
    pub fn number(self) -> u128 {
        self.0
    }

    /// The value of the `traceparent` header: version 00, the trace id, the span that sends the
    /// request, and whether it is recorded.
    fn traceparent(self, span: u64, is_sampled: bool) -> String {
        format!("00-{:032x}-{span:016x}-{:02x}", self.0, u8::from(is_sampled))
    }

    /// Reads the 32 hexadecimal digits of an identifier.
    fn parse(text: &str) -> Option<Self> {
        let id = hexadecimal(text, 32)?;
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

/// The context of a task: the request for which the task works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The identifier.
    pub id: RequestId,
    /// The span that the request's further spans belong to; `None` if it has none yet.
    pub span: Option<u64>,
    /// Whether spans of the request are recorded, where a process records any.
    pub is_sampled: bool,
}

impl Context {
    /// Makes the context of a request that begins in this process.
    pub fn begin(id: RequestId) -> Self {
        Self { id, span: None, is_sampled: samples(id, None) }
    }

    /// The context of the request that this task handles. `None` if it handles none.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(|context| *context).ok()
    }

    /// The context of the request that this task handles, or of a new one.
    pub fn current_or_new() -> Self {
        Self::current().unwrap_or_else(|| Self::begin(RequestId::new()))
    }

    /// The context of a task which continues the current span, and may end after it: a span that is
    /// open in another task would not end before that task.
    fn continued() -> Option<Self> {
        let context = Self::current()?;
        let export = Export::installed().filter(|_| context.is_sampled);
        let current = export.and_then(Export::current_span);
        Some(Self { span: current.or(context.span), ..context })
    }

    /// Makes the context of a request of which no process records spans, for example one that is
    /// repeated every second.
    pub fn unsampled() -> Self {
        Self { id: RequestId::new(), span: None, is_sampled: false }
    }

    /// Whether this process records spans of the request.
    pub fn is_recorded(self) -> bool {
        self.is_sampled && Export::installed().is_some()
    }

    /// Runs a future as part of the request, also in a task of its own.
    pub async fn scope<F: Future>(self, future: F) -> F::Output {
        CURRENT.scope(self, future).await
    }

    /// Runs a closure as part of the request.
    fn enter<T>(self, run: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self, run)
    }

    /// Makes the context of a task which handles no request. A process that exports spans does not
    /// record the requests of such a task: they are those of the platform itself.
    fn without_request() -> Self {
        match Export::installed() {
            Some(_) => Self::unsampled(),
            None => Self::begin(RequestId::new()),
        }
    }

    /// Makes the context of a received request with these headers.
    fn received(headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        if let Some(sent) = text(TRACEPARENT).and_then(Self::parse) {
            return Self { is_sampled: samples(sent.id, Some(sent.is_sampled)), ..sent };
        }
        Self::begin(text(REQUEST_ID).and_then(RequestId::parse).unwrap_or_default())
    }

    /// Reads a `traceparent` header; `None` if it does not conform to version 00 of the format.
    fn parse(header: &str) -> Option<Self> {
        let mut parts = header.split('-');
        let version = parts.next()?;
        let trace = parts.next()?;
        let parent = parts.next()?;
        hexadecimal(version, 2).filter(|version| *version != 0xff)?;
        let id = RequestId::parse(trace)?;
        let span = hexadecimal(parent, 16)? as u64;
        let flags = parts.next().and_then(|flags| hexadecimal(flags, 2)).unwrap_or_default();
        Some(Self { id, span: (span != 0).then_some(span), is_sampled: flags as u8 & SAMPLED != 0 })
    }
}

/// Decides whether a request is recorded. If this process records nothing, the sender's decision is
/// passed on.
fn samples(id: RequestId, by_parent: Option<bool>) -> bool {
    match Export::installed() {
        Some(export) => export.samples(id, by_parent),
        None => by_parent.unwrap_or(true),
    }
}

/// Starts a task that works for the request of this one, if it handles one.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    match Context::continued() {
        Some(context) => tokio::spawn(context.scope(future)),
        None => tokio::spawn(future),
    }
}

/// Marks a span as failed. It must have the fields `error.type` and `otel.status_code`.
pub fn failed(span: &Span, error: &ErrorReport) {
    span.record("error.type", error.code.as_str());
    span.record("otel.status_code", "ERROR");
}

/// A new identifier of a span: 64 bits, not all zero.
pub fn new_span_id() -> u64 {
    (Uuid::now_v7().as_u128() as u64).max(1)
}

/// Parses exactly this number of lower-case hexadecimal digits.
fn hexadecimal(text: &str, digits: usize) -> Option<u128> {
    let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let conforms = text.len() == digits && text.bytes().all(is_digit);
    conforms.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_it_writes_is_one_that_it_reads() {
        for is_sampled in [true, false] {
            let sent = Context { id: RequestId::new(), span: Some(new_span_id()), is_sampled };
            let header = sent.id.traceparent(sent.span.unwrap(), is_sampled);
            assert_eq!(Context::parse(&header), Some(sent));
        }
    }

    #[test]
    fn only_a_header_of_the_recommendation_is_accepted() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let header = format!("00-{trace}-00f067aa0ba902b7-01");
        let parsed = Context::parse(&header).unwrap();
        assert_eq!((parsed.id.to_string(), parsed.span), (trace.into(), Some(0x00f067aa0ba902b7)));
        let zero = format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32));
        let upper = header.to_uppercase();
        for bad in ["", "00", "ff-", &header[..40], &zero, &upper, &format!("ff{}", &header[2..])] {
            assert_eq!(Context::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_request_without_a_parent_has_the_identifier_of_the_other_header() {
        let mut headers = HeaderMap::new();
        let id = RequestId::new();
        headers.insert(REQUEST_ID, id.to_string().parse().unwrap());
        assert_eq!(Context::received(&headers), Context { id, span: None, is_sampled: true });
        let traced = Context { id: RequestId::new(), span: Some(7), is_sampled: false };
        headers.insert(TRACEPARENT, traced.id.traceparent(7, false).parse().unwrap());
        assert_eq!(Context::received(&headers), traced);
    }

    #[tokio::test]
    async fn a_task_knows_the_request_that_it_handles() {
        assert_eq!(RequestId::current(), None);
        let id = RequestId::new();
        assert_eq!(id.scope(async { RequestId::current() }).await, Some(id));
    }
}
