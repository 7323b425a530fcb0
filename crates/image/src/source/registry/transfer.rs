//! Requests to a registry, with interpretation of the responses and retries.
//!
//! The HTTP client is the one that reads from S3. An OCI library would add a second one with its
//! own TLS, and would hide ranges, `Retry-After` and the distinction of transient failures.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use reqwest::header::AUTHORIZATION;
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::Credentials;
use super::auth::{RegistryAccount, is_loopback};
use super::authorities::{Authorities, trusted_by};
use super::failure::{check_status, failed};
use crate::read::RetryPolicy;
use crate::{Error, Result};

const CONNECT: Duration = Duration::from_secs(10);
const MAX_IDLE_AT_END: u32 = 10;

/// A registry and the state to access it.
pub(super) struct Transfer {
    http: reqwest::Client,
    /// A client without a total timeout: the client would count it from the first byte that is
    /// sent.
    uploads: reqwest::Client,
    base: Url,
    credentials: Option<Credentials>,
    policy: RetryPolicy,
    /// The answer to the last challenge; used first, replaced when it is refused.
    authorization: Mutex<Option<String>>,
    /// True if a registry on this machine has turned out to use HTTPS.
    uses_tls: AtomicBool,
}

impl Transfer {
    /// Prepares the access to a registry. `registry` is host and port. Registries on this machine
    /// use plain HTTP, unless they answer that they require HTTPS.
    pub fn new(
        registry: &str,
        credentials: Option<Credentials>,
        policy: RetryPolicy,
        trusted: &Authorities,
    ) -> Result<Self> {
        let host = if registry == "docker.io" { "registry-1.docker.io" } else { registry };
        let scheme = if is_loopback(host) { "http" } else { "https" };
        let base = Url::parse(&format!("{scheme}://{host}/v2/")).map_err(|error| {
            Error::refused(format!("the registry `{registry}`"), error.to_string())
        })?;
        let client = || {
            let client = trusted_by(reqwest::Client::builder(), trusted)?;
            Ok::<_, Error>(client.connect_timeout(CONNECT.min(policy.attempt)))
        };
        let failed = |error: reqwest::Error| Error::unreachable(registry, error.to_string());
        let http = client()?.read_timeout(policy.attempt).build().map_err(failed)?;
        let uploads = client()?.build().map_err(failed)?;
        let authorization = Mutex::default();
        let uses_tls = AtomicBool::new(false);
        Ok(Self { http, uploads, base, credentials, policy, authorization, uses_tls })
    }

    /// Returns a URL of the registry below `/v2/`.
    pub fn url(&self, path: &str) -> Result<Url> {
        let joined = self.base.join(path);
        joined.map_err(|error| Error::refused(format!("the address `{path}`"), error.to_string()))
    }

    /// Sends a request that `make` completes, until it succeeds, fails permanently, or the policy
    /// gives up.
    pub async fn send(
        &self,
        method: Method,
        url: Url,
        make: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<Response> {
        let mut tries = Tries::default();
        loop {
            match self.send_once(method.clone(), url.clone(), &make).await {
                Err(error)
                    if error.is_transient() && self.should_retry(&mut tries, &error).await => {}
                outcome => return outcome,
            }
        }
    }

    /// Waits after a failure; returns whether to retry.
    pub async fn should_retry(&self, tries: &mut Tries, error: &Error) -> bool {
        // An unknown host name is more likely a typing error than a host that is just being
        // created.
        let within = if is_unknown_host(error) { Duration::ZERO } else { self.policy.within };
        let policy = RetryPolicy { within, ..self.policy };
        let began = *tries.failed_first.get_or_insert_with(Instant::now);
        let Some(wait) = policy.next(tries.failures, began, error) else { return false };
        tracing::debug!(%error, ?wait, "repeating a request to a registry");
        tokio::time::sleep(wait).await;
        tries.failures += 1;
        true
    }

    /// Sends a request, and once more with credentials if the registry requires them. Only
    /// successful responses are returned.
    pub async fn send_once(
        &self,
        method: Method,
        url: Url,
        make: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<Response> {
        self.request(&self.http, method, url, make).await
    }

    /// Sends a body of `size` bytes as long as there is progress; `sent` counts the bytes that were
    /// sent.
    pub async fn upload(
        &self,
        url: Url,
        make: impl Fn(RequestBuilder) -> RequestBuilder,
        sent: &AtomicU64,
        size: u64,
    ) -> Result<Response> {
        let what = format!("PUT {url}");
        let mut request = pin!(self.request(&self.uploads, Method::PUT, url, make));
        let mut before = 0;
        let mut idle = 0;
        loop {
            if let Ok(answer) = timeout(self.policy.attempt, &mut request).await {
                return answer;
            }
            let now = sent.load(Ordering::Relaxed);
            idle = if now == before { idle + 1 } else { 0 };
            before = now;
            // A registry reads a large blob once more before it responds.
            if idle >= if now == size { MAX_IDLE_AT_END } else { 1 } {
                return Err(Error::unreachable(what, format!("no progress after {now} bytes")));
            }
        }
    }

    async fn request(
        &self,
        client: &reqwest::Client,
        method: Method,
        url: Url,
        make: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<Response> {
        let secured = self.secured(url.clone());
        let error = match self.attempt(client, method.clone(), secured.clone(), &make).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        if secured.scheme() != "http" || !self.requires_tls(&error).await {
            return Err(error);
        }
        self.uses_tls.store(true, Ordering::Relaxed);
        self.attempt(client, method, self.secured(url), &make).await
    }

    /// Returns whether a failure over plain HTTP means that the registry requires HTTPS.
    async fn requires_tls(&self, error: &Error) -> bool {
        // The response to a HEAD request has no text.
        let is_empty = matches!(error, Error::Refused { reason, .. } if reason == "status 400: ");
        if !is_empty {
            return mentions_tls(error);
        }
        let what = "the registry";
        let found = match self.http.get(self.base.clone()).send().await {
            Ok(answer) => check_status(self.host(), what, answer).await.err(),
            Err(error) => Some(failed(what, &error)),
        };
        found.is_some_and(|error| mentions_tls(&error))
    }

    /// Returns a URL of the registry, with HTTPS if the registry has turned out to use it.
    fn secured(&self, mut url: Url) -> Url {
        if self.uses_tls.load(Ordering::Relaxed) && url.origin() == self.base.origin() {
            // A change between these two schemes never fails.
            let _ = url.set_scheme("https");
        }
        url
    }

    async fn attempt(
        &self,
        client: &reqwest::Client,
        method: Method,
        url: Url,
        make: &impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<Response> {
        let what = format!("{method} {url}");
        let build = |authorization: Option<String>| {
            let request = client.request(method.clone(), url.clone());
            // Requests to other hosts, such as the target of an upload, get no credentials.
            let ours = url.origin() == self.secured(self.base.clone()).origin();
            match authorization.filter(|_| ours) {
                Some(value) => make(request.header(AUTHORIZATION, value)),
                None => make(request),
            }
        };
        let known = self.authorization.lock().await.clone();
        let answer = build(known).send().await.map_err(|error| failed(&what, &error))?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return check_status(self.host(), &what, answer).await;
        }
        let fresh = self.account().authorize(&answer).await?;
        *self.authorization.lock().await = Some(fresh.clone());
        let answer = build(Some(fresh)).send().await.map_err(|error| failed(&what, &error))?;
        check_status(self.host(), &what, answer).await
    }

    /// The user's account at the registry, which answers challenges.
    fn account(&self) -> RegistryAccount<'_> {
        let credentials = self.credentials.as_ref();
        RegistryAccount { http: &self.http, registry: self.host(), credentials }
    }

    /// The registry's host.
    fn host(&self) -> &str {
        self.base.host_str().unwrap_or_default()
    }
}

/// The number of failures of a request, and the time of the first.
#[derive(Default)]
pub(super) struct Tries {
    failures: u32,
    failed_first: Option<Instant>,
}

/// Returns whether the resolver reports that a name does not exist, rather than a temporary
/// failure.
fn is_unknown_host(error: &Error) -> bool {
    const MESSAGES: [&str; 2] =
        ["Name or service not known", "No address associated with hostname"];
    matches!(error, Error::Unreachable { reason, .. } if MESSAGES.iter().any(|message| reason.contains(message)))
}

/// Recognises responses of HTTPS servers to plain HTTP: a sentence in a response with status 400
/// (Go, nginx, Apache), or a TLS record.
fn mentions_tls(error: &Error) -> bool {
    match error {
        Error::Refused { reason, .. } => {
            reason.starts_with("status 400") && reason.contains("HTTPS")
        }
        Error::Unreachable { reason, .. } => reason.contains("invalid HTTP version"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_unknown_hosts_from_temporary_failures() {
        let is_unknown = |reason: &str| is_unknown_host(&Error::unreachable("it", reason));
        let lookup = "failed to lookup address information: ";
        assert!(is_unknown(&format!("{lookup}Name or service not known")));
        assert!(!is_unknown(&format!("{lookup}Temporary failure in name resolution")));
        assert!(!is_unknown("Connection refused (os error 111)"));
    }
}
