//! One request to a registry: what the answer means, and again if it may pass.
//!
//! The HTTP client is the one that reads from S3. An OCI library would bring a second one with its
//! own TLS, and hides what is needed here: ranges, `Retry-After`, and which failures may pass.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use reqwest::header::{AUTHORIZATION, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::auth::authorize;
use super::{Credentials, authorities};
use crate::read::Patience;
use crate::{Error, Result};

const CONNECT: Duration = Duration::from_secs(10);
const SILENCES_AT_THE_END: u32 = 10;

/// A registry and what it takes to be let in.
pub(super) struct Transfer {
    http: reqwest::Client,
    /// Without a limit of its own: that of the client counts from the first byte that is sent.
    uploads: reqwest::Client,
    base: Url,
    credentials: Option<Credentials>,
    patience: Patience,
    /// What the last challenge gave; tried first, replaced when it is refused.
    authorization: Mutex<Option<String>>,
    /// Whether a registry of this machine said that it speaks HTTPS.
    speaks_tls: AtomicBool,
}

impl Transfer {
    /// `registry` is host and port. This machine's own registries speak plain HTTP, unless they
    /// answer that they do not.
    pub fn new(
        registry: &str,
        credentials: Option<Credentials>,
        patience: Patience,
    ) -> Result<Self> {
        let host = if registry == "docker.io" { "registry-1.docker.io" } else { registry };
        let scheme = if is_loopback(host) { "http" } else { "https" };
        let base = Url::parse(&format!("{scheme}://{host}/v2/")).map_err(|error| {
            Error::refused(format!("the registry `{registry}`"), error.to_string())
        })?;
        let client = || {
            let client = authorities::trusted_by(reqwest::Client::builder())?;
            Ok::<_, Error>(client.connect_timeout(CONNECT.min(patience.attempt)))
        };
        let failed = |error: reqwest::Error| Error::unreachable(registry, error.to_string());
        let http = client()?.read_timeout(patience.attempt).build().map_err(failed)?;
        let uploads = client()?.build().map_err(failed)?;
        let (authorization, speaks_tls) = (Mutex::default(), AtomicBool::new(false));
        Ok(Self { http, uploads, base, credentials, patience, authorization, speaks_tls })
    }

    /// An address below `/v2/`.
    pub fn url(&self, path: &str) -> Result<Url> {
        let joined = self.base.join(path);
        joined.map_err(|error| Error::refused(format!("the address `{path}`"), error.to_string()))
    }

    /// Sends a request that `make` fills until it succeeds, fails for good or patience is out.
    pub async fn send(
        &self,
        method: Method,
        url: Url,
        make: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<Response> {
        let mut tries = Tries::default();
        loop {
            match self.send_once(method.clone(), url.clone(), &make).await {
                Err(error) if error.is_transient() && self.is_patient(&mut tries, &error).await => {
                }
                outcome => return outcome,
            }
        }
    }

    /// Waits behind a failure, and says whether to try again.
    pub async fn is_patient(&self, tries: &mut Tries, error: &Error) -> bool {
        // A host that nobody knows is misspelt more often than it is made meanwhile.
        let within = if is_unknown_host(error) { Duration::ZERO } else { self.patience.within };
        let patience = Patience { within, ..self.patience };
        let began = *tries.failed_first.get_or_insert_with(Instant::now);
        let Some(wait) = patience.next(tries.failures, began, error) else { return false };
        tracing::debug!(%error, ?wait, "asking a registry again");
        tokio::time::sleep(wait).await;
        tries.failures += 1;
        true
    }

    /// Sends a request, once more if the registry asks who is there. Only answers of success come
    /// back.
    pub async fn send_once(
        &self,
        method: Method,
        url: Url,
        make: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<Response> {
        self.request(&self.http, method, url, make).await
    }

    /// Sends a body of `size` bytes, of which `sent` says how many went, for as long as some go.
    pub async fn upload(
        &self,
        url: Url,
        make: impl Fn(RequestBuilder) -> RequestBuilder,
        (sent, size): (&AtomicU64, u64),
    ) -> Result<Response> {
        let what = format!("PUT {url}");
        let mut request = pin!(self.request(&self.uploads, Method::PUT, url, make));
        let (mut before, mut silences) = (0, 0);
        loop {
            if let Ok(answer) = timeout(self.patience.attempt, &mut request).await {
                return answer;
            }
            let now = sent.load(Ordering::Relaxed);
            silences = if now == before { silences + 1 } else { 0 };
            before = now;
            // A registry reads all of a large blob once more before it answers.
            if silences >= if now == size { SILENCES_AT_THE_END } else { 1 } {
                return Err(Error::unreachable(what, format!("nothing went behind {now} bytes")));
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
        if secured.scheme() != "http" || !self.turns_to_tls(&error).await {
            return Err(error);
        }
        self.speaks_tls.store(true, Ordering::Relaxed);
        self.attempt(client, method, self.secured(url), &make).await
    }

    /// Whether a failure over plain HTTP says that the registry wants HTTPS.
    async fn turns_to_tls(&self, error: &Error) -> bool {
        // The answer to a question for the head alone has no words.
        let is_silent = matches!(error, Error::Refused { reason, .. } if reason == "status 400: ");
        if !is_silent {
            return wants_tls(error);
        }
        let what = "the registry";
        let told = match self.http.get(self.base.clone()).send().await {
            Ok(answer) => self.judge(what, answer).await.err(),
            Err(error) => Some(failed(what, &error)),
        };
        told.is_some_and(|error| wants_tls(&error))
    }

    /// An address of the registry, over HTTPS if it turned out to speak that.
    fn secured(&self, mut url: Url) -> Url {
        if self.speaks_tls.load(Ordering::Relaxed) && url.origin() == self.base.origin() {
            // The one scheme may always become the other.
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
            // A foreign address, such as that of an upload, gets no word of who we are.
            let ours = url.origin() == self.secured(self.base.clone()).origin();
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
        let fresh = authorize(self, &answer).await?;
        *self.authorization.lock().await = Some(fresh.clone());
        let answer = build(Some(fresh)).send().await.map_err(|error| failed(&what, &error))?;
        self.judge(&what, answer).await
    }

    /// The client, for requests to others than the registry.
    pub fn http(&self) -> &reqwest::Client {
        &self.http
    }

    /// Who asks.
    pub fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    /// What a status means; the bodies of failures are short and shown in part.
    pub async fn judge(&self, what: &str, answer: Response) -> Result<Response> {
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let after = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let after = after.and_then(|text| wait(text, SystemTime::now()));
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

    /// The registry does not let this user do it.
    pub fn denied(&self, what: &str, reason: &str) -> Error {
        let registry = self.base.host_str().unwrap_or_default().to_owned();
        Error::Denied { registry, what: what.to_owned(), reason: reason.to_owned() }
    }
}

/// How often a request failed so far, and since when.
#[derive(Default)]
pub(super) struct Tries {
    failures: u32,
    failed_first: Option<Instant>,
}

/// What the resolver says of a name that does not exist; one that it cannot ask now, it says
/// otherwise.
fn is_unknown_host(error: &Error) -> bool {
    const SAID: [&str; 2] = ["Name or service not known", "No address associated with hostname"];
    matches!(error, Error::Unreachable { reason, .. } if SAID.iter().any(|it| reason.contains(it)))
}

/// What servers of HTTPS answer to plain HTTP: a sentence in an answer with status 400 (Go, nginx,
/// Apache), or a record of TLS.
fn wants_tls(error: &Error) -> bool {
    match error {
        Error::Refused { reason, .. } => {
            reason.starts_with("status 400") && reason.contains("HTTPS")
        }
        Error::Unreachable { reason, .. } => reason.contains("invalid HTTP version"),
        _ => false,
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
    // The type of the error is that of the library of TLS, which is not ours to name.
    if reason.contains("invalid peer certificate") {
        let reason = reason.replace("UnknownIssuer", "no authority that is known has signed it");
        return Error::Untrusted { what: what.to_owned(), reason };
    }
    if reason.contains("InvalidContentType") {
        reason = "it speaks plain HTTP, which only registries of this machine may".to_owned();
    }
    Error::unreachable(what, reason)
}

/// `Retry-After`: seconds or a date.
fn wait(text: &str, now: SystemTime) -> Option<Duration> {
    match text.trim().parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            Some(httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default())
        }
    }
}

async fn reason(status: StatusCode, mut answer: Response) -> String {
    let start = answer.chunk().await.ok().flatten().unwrap_or_default();
    format!("status {}: {}", status.as_u16(), words(&String::from_utf8_lossy(&start)))
}

/// What a registry says of a failure: the messages of its list of errors, or the beginning of any
/// other text, on one line.
fn words(body: &str) -> String {
    #[derive(Deserialize)]
    struct Told {
        #[serde(default)]
        code: String,
        #[serde(default)]
        message: String,
    }
    #[derive(Deserialize)]
    struct All {
        errors: Vec<Told>,
    }
    let listed = serde_json::from_str::<All>(body).ok();
    let told = |Told { code, message }: &Told| match (code.as_str(), message.as_str()) {
        ("", text) | (text, "") => text.to_owned(),
        (code, message) => format!("{message} ({code})"),
    };
    let text = match listed.filter(|all| !all.errors.is_empty()) {
        Some(all) => all.errors.iter().map(told).collect::<Vec<_>>().join("; "),
        None => body.trim().to_owned(),
    };
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(200).map(plain).collect()
}

pub(super) fn is_loopback(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']);
    let address = name.parse::<std::net::IpAddr>();
    name == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_told_in_seconds_or_as_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_770);
        assert_eq!(wait("7", now), Some(Duration::from_secs(7)));
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(wait(date, now), Some(Duration::from_secs(7)));
        assert_eq!(wait(date, now + Duration::from_secs(60)), Some(Duration::ZERO));
        assert_eq!(wait("soon", now), None);
    }

    #[test]
    fn a_host_that_does_not_exist_is_told_from_one_that_cannot_be_asked_for_now() {
        let said = |reason: &str| is_unknown_host(&Error::unreachable("it", reason));
        let lookup = "failed to lookup address information: ";
        assert!(said(&format!("{lookup}Name or service not known")));
        assert!(!said(&format!("{lookup}Temporary failure in name resolution")));
        assert!(!said("Connection refused (os error 111)"));
    }

    #[test]
    fn a_failure_is_told_in_the_registrys_words() {
        let listed = r#"{"errors": [{"code": "UNAUTHORIZED", "message": "authentication required",
            "detail": [{"Type": "repository"}]}, {"message": "who are you?"}]}"#;
        assert_eq!(words(listed), "authentication required (UNAUTHORIZED); who are you?");
        assert_eq!(words("<h1>\u{1b}No\n</h1>"), "<h1> No </h1>");
        assert_eq!(words(r#"{"errors": []}"#), r#"{"errors": []}"#);
        assert_eq!(words(""), "");
        assert_eq!(words(&"x".repeat(1000)).len(), 200);
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
