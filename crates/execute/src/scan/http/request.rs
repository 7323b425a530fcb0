//! Sends requests, and follows a server to others that are on the list.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{ACCEPT_ENCODING, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, Response, StatusCode};
use snowmelt_wire::HttpSource;
use url::Url;

use super::addresses;
use crate::error::fault::http::HttpFault;

/// How often a server may refer to another address.
const MAX_REDIRECTS: usize = 5;

/// How long a connection may take, and how long a server may send nothing.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// A client of the listed servers.
#[derive(Clone, Debug)]
pub(super) struct SourceClient {
    client: Client,
    sources: Arc<[HttpSource]>,
}

impl SourceClient {
    /// Creates the client. Sends no request.
    pub(super) fn new(sources: &[HttpSource]) -> Result<Self, HttpFault> {
        let client = Client::builder()
            .user_agent("snowmelt")
            .redirect(Policy::none())
            // A proxy would resolve the names itself.
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .dns_resolver(addresses::resolver())
            .build();
        let client = client.map_err(|error| HttpFault::Connection(root(&error)))?;
        Ok(Self { client, sources: sources.into() })
    }

    /// The answer to a request, which is no redirection.
    pub(super) async fn send(
        &self,
        method: Method,
        url: &Url,
        headers: &[(HeaderName, String)],
    ) -> Result<Response, HttpFault> {
        let mut sent = HeaderMap::new();
        // Ranges are those of the file, not of what a server makes of it on the way.
        sent.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        for (name, value) in headers {
            let value = HeaderValue::from_str(value);
            sent.insert(name, value.map_err(|error| HttpFault::Answer(error.to_string()))?);
        }
        let mut url = url.clone();
        let mut from = String::new();
        for _ in 0..=MAX_REDIRECTS {
            addresses::check(&url, &self.sources, &from)?;
            let request = self.client.request(method.clone(), url.clone()).headers(sent.clone());
            let answer = request.send().await.map_err(|error| fault(&error))?;
            if !is_redirection(answer.status()) {
                return Ok(answer);
            }
            let target = answer.headers().get(LOCATION).and_then(|header| header.to_str().ok());
            let next = target.and_then(|target| url.join(target).ok());
            let next = next.filter(|next| next.has_host()).ok_or(HttpFault::Redirect)?;
            from = format!("`{}` refers to ", url.origin().ascii_serialization());
            from.push_str("another server: ");
            url = next;
        }
        Err(HttpFault::ManyRedirects)
    }
}

fn is_redirection(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Why a request has no answer, or no whole one.
pub(super) fn fault(error: &reqwest::Error) -> HttpFault {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(fault) = error.downcast_ref::<HttpFault>() {
            return fault.clone();
        }
        cause = error.source();
    }
    HttpFault::Connection(match () {
        () if error.is_timeout() => "the server does not answer in time".to_owned(),
        () if error.is_connect() => format!("no connection to the server: {}", root(error)),
        () => format!("the connection to the server broke: {}", root(error)),
    })
}

/// The innermost reason, without the URL.
fn root(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string().lines().next().unwrap_or_default().to_owned()
}
