//! Requests to a collector of spans.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::settings::Endpoint;

/// The time limit for a request: the default of the specification.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The greatest number of bytes of a response that are read. A response is read so that the
/// connection can be used again.
const MAX_RESPONSE: usize = 64 << 10;

/// The reason why spans were not accepted.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The collector gave no answer: it may be back later.
    #[error("{0}")]
    Unreachable(String),
    /// The collector gave an answer that is not a success.
    #[error("it answered {0}")]
    Status(StatusCode),
}

impl Refused {
    /// Whether the same request may succeed later, as the specification lists it.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::Status(status) => matches!(status.as_u16(), 429 | 502..=504),
        }
    }
}

/// Sends bodies to an endpoint, over connections that are kept.
#[derive(Debug)]
pub struct Collector {
    endpoint: Endpoint,
    headers: HeaderMap,
}

/// A collector to which this runtime keeps connections.
#[derive(Debug)]
pub struct Connected {
    collector: Collector,
    http: Client<HttpConnector, Full<Bytes>>,
}

impl Collector {
    pub fn new(endpoint: Endpoint, mut headers: HeaderMap) -> Self {
        headers.insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
        Self { endpoint, headers }
    }

    /// Makes the connections of the collector. Must be called in the runtime of the requests.
    pub fn connect(self) -> Connected {
        let http = Client::builder(TokioExecutor::new()).build_http();
        Connected { collector: self, http }
    }
}

impl Connected {
    pub fn endpoint(&self) -> &Endpoint {
        &self.collector.endpoint
    }

    /// Sends the body of a request.
    pub async fn send(&self, body: Bytes) -> Result<(), Refused> {
        tokio::time::timeout(TIMEOUT, self.exchange(body))
            .await
            .unwrap_or_else(|_| Err(Refused::Unreachable(format!("no answer in {TIMEOUT:?}"))))
    }

    async fn exchange(&self, body: Bytes) -> Result<(), Refused> {
        let mut request = Request::post(self.endpoint().uri().clone())
            .body(Full::new(body))
            .map_err(|error| Refused::Unreachable(error.to_string()))?;
        request.headers_mut().extend(self.collector.headers.clone());
        let answered = self.http.request(request).await;
        let response = answered.map_err(|error| Refused::Unreachable(innermost(&error)))?;
        let status = response.status();
        // What a collector says of single spans is not used.
        let _ = Limited::new(response.into_body(), MAX_RESPONSE).collect().await;
        if status.is_success() { Ok(()) } else { Err(Refused::Status(status)) }
    }
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
