//! Requests to an authority.
//!
//! Invariants: an authority is reached over TLS only, and nothing leads a request elsewhere. An
//! answer has a limit of bytes and of time.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use reqwest::{Certificate, Client, redirect};

/// How long an authority may take for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The most bytes of an answer.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Sends the requests of orders. Clones share what the authority asked to wait.
#[derive(Clone, Debug)]
pub(super) struct AcmeHttp {
    client: Client,
    wait: Arc<Mutex<Option<Duration>>>,
}

impl AcmeHttp {
    /// Trusts the authorities of a PEM text, or those of the system.
    pub fn new(trusted: Option<&[u8]>) -> Result<Self, String> {
        let mut builder = Client::builder()
            .timeout(ANSWER_TIMEOUT)
            .redirect(redirect::Policy::none())
            .https_only(true)
            .user_agent("snowmelt");
        if let Some(pem) = trusted {
            let found = Certificate::from_pem_bundle(pem).map_err(|error| reason(&error))?;
            if found.is_empty() {
                return Err("there is no PEM certificate".to_owned());
            }
            builder = builder.tls_built_in_root_certs(false);
            builder =
                found.into_iter().fold(builder, |builder, one| builder.add_root_certificate(one));
        }
        let client = builder.build().map_err(|error| reason(&error))?;
        Ok(Self { client, wait: Arc::default() })
    }

    /// Takes the time that the authority has asked to wait with a refusal.
    pub fn asked_to_wait(&self) -> Option<Duration> {
        self.wait.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn send(&self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, String> {
        let (asked, body) = request.into_parts();
        let Ok(body) = body.collect().await;
        let url = asked.uri.to_string();
        let failed = |error: reqwest::Error| format!("{url}: {}", reason(&error));
        let sent = self.client.request(asked.method.clone(), &url).headers(asked.headers);
        let mut answer = sent.body(body.to_bytes()).send().await.map_err(failed)?;
        let status = answer.status();
        // The directory; all else is asked for by other methods.
        if asked.method == Method::GET && !status.is_success() {
            return Err(format!("{url} answers {status}"));
        }
        if !status.is_success() {
            let seconds = answer.headers().get(RETRY_AFTER).and_then(|text| text.to_str().ok());
            let seconds = seconds.and_then(|text| text.trim().parse().ok());
            *self.wait.lock().unwrap_or_else(PoisonError::into_inner) =
                seconds.map(Duration::from_secs);
        }
        let (mut parts, ()) = Response::new(()).into_parts();
        parts.status = status;
        parts.headers = std::mem::take(answer.headers_mut());
        let mut read = Vec::new();
        while let Some(part) = answer.chunk().await.map_err(failed)? {
            if read.len() + part.len() > MAX_ANSWER_BYTES {
                return Err(format!("{url}: the answer has more than {MAX_ANSWER_BYTES} bytes"));
            }
            read.extend_from_slice(&part);
        }
        Ok(BytesResponse { parts, body: Box::new(Bytes::from(read)) })
    }
}

impl HttpClient for AcmeHttp {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.clone();
        Box::pin(
            async move { client.send(request).await.map_err(|text| Error::Other(text.into())) },
        )
    }
}

/// Returns the first cause of an error: the errors above it say only that a request failed.
fn reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("there is no answer within {} s", ANSWER_TIMEOUT.as_secs());
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
