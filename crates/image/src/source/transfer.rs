//! One request to a registry: who asks, what the answer means.
//!
//! The HTTP client is the one that reads from S3. An OCI library would bring a second one with its
//! own TLS, and hides what is needed here: ranges, `Retry-After`, and which failures may pass.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, RETRY_AFTER, WWW_AUTHENTICATE};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::Credentials;
use crate::{Error, Result};

/// Answers that begin later than this are none.
const CONNECT: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(30);

/// A registry and what it takes to be let in.
pub(super) struct Transfer {
    http: reqwest::Client,
    base: Url,
    credentials: Option<Credentials>,
    /// What the last challenge gave; tried first, replaced when it is refused.
    authorization: Mutex<Option<String>>,
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Transfer {
    /// `registry` is host and port. This machine's own registries speak plain HTTP.
    pub fn new(registry: &str, credentials: Option<Credentials>) -> Result<Self> {
        let host = if registry == "docker.io" { "registry-1.docker.io" } else { registry };
        let scheme = if is_loopback(host) { "http" } else { "https" };
        let base = Url::parse(&format!("{scheme}://{host}/v2/")).map_err(|error| {
            Error::refused(format!("the registry `{registry}`"), error.to_string())
        })?;
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            .build()
            .map_err(|error| Error::unreachable(base.to_string(), error.to_string()))?;
        Ok(Self { http, base, credentials, authorization: Mutex::new(None) })
    }

    /// An address below `/v2/`.
    pub fn url(&self, path: &str) -> Result<Url> {
        let joined = self.base.join(path);
        joined.map_err(|error| Error::refused(format!("the address `{path}`"), error.to_string()))
    }

    /// Sends a request that `make` fills, once more if the registry asks who is there. Only answers
    /// of success come back.
    pub async fn send(
        &self,
        method: Method,
        url: Url,
        make: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<Response> {
        let what = format!("{method} {url}");
        let build = |authorization: Option<String>| {
            let request = self.http.request(method.clone(), url.clone());
            // A foreign address, such as that of an upload, gets no word of who we are.
            let ours = url.origin() == self.base.origin();
            match authorization.filter(|_| ours) {
                Some(value) => make(request.header(AUTHORIZATION, value)),
                None => make(request),
            }
        };
        let known = self.authorization.lock().await.clone();
        let answer = build(known).send().await.map_err(|error| failed(&what, &error))?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return self.judge(&what, answer).await;
        }
        let fresh = self.authorize(&answer).await?;
        *self.authorization.lock().await = Some(fresh.clone());
        let answer = build(Some(fresh)).send().await.map_err(|error| failed(&what, &error))?;
        self.judge(&what, answer).await
    }

    /// The header that a challenge asks for.
    async fn authorize(&self, answer: &Response) -> Result<String> {
        let challenges = answer.headers().get_all(WWW_AUTHENTICATE).iter();
        for challenge in challenges.filter_map(|value| value.to_str().ok()) {
            let (scheme, parameters) = challenge.split_once(' ').unwrap_or((challenge, ""));
            if scheme.eq_ignore_ascii_case("bearer") {
                return self.token(parameters).await;
            }
            if scheme.eq_ignore_ascii_case("basic")
                && let Some(login) = &self.credentials
            {
                return Ok(basic(login));
            }
        }
        Err(self.denied("it", "it asks for a login"))
    }

    async fn token(&self, parameters: &str) -> Result<String> {
        let find = |key: &str| parameter(parameters, key);
        let realm = find("realm").and_then(|realm| Url::parse(&realm).ok());
        let Some(mut url) = realm else {
            return Err(self.denied("it", "its challenge is malformed"));
        };
        // The secret must not travel in the clear because an answer says so.
        if url.scheme() != "https" && !url.host_str().is_some_and(is_loopback) {
            return Err(self.denied("it", "it wants the login over plain HTTP"));
        }
        for key in ["service", "scope"] {
            if let Some(value) = find(key) {
                url.query_pairs_mut().append_pair(key, &value);
            }
        }
        let mut request = self.http.get(url.clone());
        if let Some(login) = &self.credentials {
            request = request.header(AUTHORIZATION, basic(login));
        }
        let what = format!("GET {url}");
        let answer = request.send().await.map_err(|error| failed(&what, &error))?;
        let answer = self.judge(&what, answer).await?;
        let bytes = answer.bytes().await.map_err(|error| failed(&what, &error))?;
        let token: Token = serde_json::from_slice(&bytes)
            .map_err(|error| Error::refused(&what, error.to_string()))?;
        match token.token.or(token.access_token) {
            Some(token) => Ok(format!("Bearer {token}")),
            None => Err(self.denied("it", "it gives no token")),
        }
    }

    /// What a status means; the bodies of failures are short and shown in part.
    async fn judge(&self, what: &str, answer: Response) -> Result<Response> {
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let after = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let after = after.and_then(|text| text.parse().ok()).map(Duration::from_secs);
        let reason = reason(status, answer).await;
        Err(match status {
            StatusCode::NOT_FOUND => Error::missing(what),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => self.denied(what, &reason),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => {
                Error::Unreachable { what: what.to_owned(), reason, after }
            }
            _ if status.is_server_error() => {
                Error::Unreachable { what: what.to_owned(), reason, after }
            }
            _ => Error::refused(what, reason),
        })
    }

    fn denied(&self, what: &str, reason: &str) -> Error {
        let registry = self.base.host_str().unwrap_or_default().to_owned();
        Error::Denied { registry, what: what.to_owned(), reason: reason.to_owned() }
    }
}

/// A request that got no answer, or half of one.
pub(super) fn failed(what: &str, error: &reqwest::Error) -> Error {
    let mut reason = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(deeper) = cause {
        reason = deeper.to_string();
        cause = deeper.source();
    }
    Error::unreachable(what, reason)
}

async fn reason(status: StatusCode, mut answer: Response) -> String {
    let start = answer.chunk().await.ok().flatten().unwrap_or_default();
    let text: String = String::from_utf8_lossy(&start).chars().take(200).collect();
    format!("status {}: {}", status.as_u16(), text.trim().escape_debug())
}

fn basic(login: &Credentials) -> String {
    use base64::Engine;
    let text = format!("{}:{}", login.user, login.secret);
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(text))
}

/// `key="value"` of a challenge.
fn parameter(parameters: &str, key: &str) -> Option<String> {
    let mut rest = parameters;
    while let Some((name, after)) = rest.split_once("=\"") {
        let (value, next) = after.split_once('"')?;
        if name.trim_start_matches([',', ' ']).eq_ignore_ascii_case(key) {
            return Some(value.to_owned());
        }
        rest = next;
    }
    None
}

fn is_loopback(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']);
    let address = name.parse::<std::net::IpAddr>();
    name == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_challenges() {
        let challenge =
            r#"realm="https://auth/token",service="r",scope="repository:a/b:pull,push""#;
        assert_eq!(parameter(challenge, "scope").unwrap(), "repository:a/b:pull,push");
        assert_eq!(parameter(challenge, "realm").unwrap(), "https://auth/token");
        assert_eq!(parameter(challenge, "error"), None);
        assert_eq!(parameter("realm=\"x", "realm"), None);
    }

    #[test]
    fn only_this_machine_speaks_plain_http() {
        for host in ["localhost:5000", "127.0.0.1:1", "[::1]:5000", "localhost"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["registry-1.docker.io", "10.0.0.1:5000", "localhost.example:80"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
