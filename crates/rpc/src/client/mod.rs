//! The client: requests with JSON bodies to one server, over pooled connections.
//!
//! Invariant: dropping a request, or the body of a response that has not ended, closes its
//! connection. The server then ends what it did for the request.

mod connect;
mod lines;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use snowmelt_types::{Code, ErrorReport};
use tracing::Instrument;

use connect::Connector;
pub(crate) use connect::{tcp as connect_tcp, watch};
pub use lines::Lines;

use crate::body::{MAX_REQUEST_BYTES, too_long};
use crate::endpoint::Endpoint;
pub use crate::endpoint::{InProcess, TlsServer};
use crate::membership::TERM;
use crate::trace::Outgoing;
use crate::version::{PROTOCOL_HEADER, protocol};
use crate::{Credential, HostTarget, Meant, Token, checksum_errors};

/// The time for which an idle connection is kept. It is less than the time for which any server
/// here keeps one, so that a request is not sent on a connection that the server is closing.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// The greatest number of idle connections.
const MAX_IDLE: usize = 16;

/// The body of a request that is sent while it is produced.
pub type Upload = UnsyncBoxBody<Bytes, std::io::Error>;

/// A request without a body.
pub const NO_BODY: Option<&()> = None;

/// Sends requests to one server. Cheap to clone; clones share connections.
#[derive(Clone, Debug)]
pub struct Client {
    endpoint: Endpoint,
    token: Option<Token>,
    header: Option<(&'static str, Arc<str>)>,
    http: legacy::Client<Connector, Upload>,
}

/// A request that was not answered.
#[derive(Clone, Debug)]
pub struct Unanswered {
    /// The error that prevented the answer.
    pub report: ErrorReport,
    /// False if there was no connection, so that the server has not seen the request.
    pub may_have_arrived: bool,
}

impl Client {
    /// A client of the server on a socket of this machine.
    pub fn unix(socket: impl Into<PathBuf>) -> Self {
        Self::new(Endpoint::Unix(Arc::new(socket.into())), None)
    }

    /// A client of a server in this process.
    pub fn in_process(server: InProcess) -> Self {
        Self::new(Endpoint::InProcess(server), None)
    }

    /// A client of another process of the cluster.
    pub fn host(target: Arc<HostTarget>) -> Self {
        let token = target.credential.token().cloned();
        Self::new(Endpoint::Tcp(target), token)
    }

    /// A client of a server of a cluster without encryption, with this token.
    pub fn tcp(address: std::net::SocketAddr, token: Token) -> Self {
        let credential = Credential::from(token);
        Self::host(Arc::new(HostTarget { address, meant: Meant::Control, credential }))
    }

    /// A client of a server over TLS, with the token of a tenant.
    pub fn tls(server: TlsServer, token: Token) -> Self {
        Self::new(Endpoint::Tls(server), Some(token))
    }

    /// A client of a server over TLS, for what needs no token.
    pub fn tls_without_token(server: TlsServer) -> Self {
        Self::new(Endpoint::Tls(server), None)
    }

    fn new(endpoint: Endpoint, token: Option<Token>) -> Self {
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new());
        builder.pool_idle_timeout(IDLE_TIMEOUT).pool_max_idle_per_host(MAX_IDLE);
        let http = builder.build(Connector(endpoint.clone()));
        Self { endpoint, token, header: None, http }
    }

    /// Sends this header, or none, with each request.
    pub fn with_header(mut self, name: &'static str, value: Option<&str>) -> Self {
        self.header = value.map(|value| (name, value.into()));
        self
    }

    /// The place at which the server listens.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Sends a request and reads a JSON response.
    pub async fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, ErrorReport> {
        let response = self.send(method, path, body).await?;
        decode(&self.whole(response).await?)
    }

    /// Sends a request whose response has no body.
    pub async fn no_content(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<(), ErrorReport> {
        let response = self.send(method, path, body).await?;
        // A body that is read to its end lets the connection be used again.
        self.whole(response).await.map(drop)
    }

    /// Sends a request. Returns the response, whose body then arrives bit by bit.
    ///
    /// # Errors
    /// A server that cannot be reached; the error of a response that is not a success.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Response<Incoming>, ErrorReport> {
        let response = self.exchange(method, path, body).await?;
        self.success(response).await
    }

    /// Sends a body of any length. Returns the response, whose body then arrives bit by bit, and
    /// may begin before the request's body has ended.
    ///
    /// # Errors
    /// Fails as [`Self::send`].
    pub async fn upload(
        &self,
        path: &str,
        kind: &'static str,
        body: Upload,
    ) -> Result<Response<Incoming>, ErrorReport> {
        let response = self.request(Method::POST, path, kind, body).await;
        let response = response.map_err(|unanswered| unanswered.report)?;
        self.success(response).await
    }

    async fn success(
        &self,
        response: Response<Incoming>,
    ) -> Result<Response<Incoming>, ErrorReport> {
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = self.whole(response).await?;
        Err(self.problem(status, &body))
    }

    /// Sends a request. Returns the response, whatever its status is.
    pub async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Response<Incoming>, ErrorReport> {
        let answered = self.exchange_once(method, path, body).await;
        answered.map_err(|unanswered| unanswered.report)
    }

    /// Sends a request that must not be sent twice. Returns the response, whatever its status is.
    pub async fn exchange_once(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Response<Incoming>, Unanswered> {
        let not_sent = |report| Unanswered { report, may_have_arrived: false };
        let body = body.map(serde_json::to_vec).transpose();
        let body = body.map_err(|error| not_sent(internal(error)))?.unwrap_or_default();
        // The server refuses it while it is still being sent, and its response would be lost.
        if body.len() > MAX_REQUEST_BYTES {
            return Err(not_sent(too_long()));
        }
        let body = Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed_unsync();
        self.request(method, path, "application/json", body).await
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        kind: &'static str,
        body: Upload,
    ) -> Result<Response<Incoming>, Unanswered> {
        let not_sent = |report| Unanswered { report, may_have_arrived: false };
        let outgoing = Outgoing::new(&method, path, &self.endpoint);
        let request = Request::builder()
            .method(method)
            .uri(format!("http://snowmelt{path}"))
            .header(header::CONTENT_TYPE, kind);
        let mut request = outgoing.identify(request);
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token.header());
        }
        let host = self.endpoint.host();
        if host.is_some() {
            request = request.header(PROTOCOL_HEADER, protocol());
        }
        if let Some(term) = host.and_then(|host| host.credential.terms().own()) {
            request = request.header(TERM, term);
        }
        if let Some((name, value)) = &self.header {
            request = request.header(*name, &**value);
        }
        let request = request.body(body).map_err(|error| not_sent(internal(error)))?;
        let answered = self.http.request(request).instrument(outgoing.span.clone()).await;
        outgoing.describe(&answered);
        let answer = answered.map_err(|error| Unanswered {
            report: self.unreachable(&error),
            may_have_arrived: !error.is_connect(),
        })?;
        if let Some(host) = host {
            let terms = host.credential.terms();
            let learned = terms.learn(answer.headers(), host.meant == Meant::Control);
            learned.map_err(|report| Unanswered { report, may_have_arrived: true })?;
        }
        Ok(answer)
    }

    /// Reads the whole body of a response.
    pub async fn whole(&self, response: Response<Incoming>) -> Result<Bytes, ErrorReport> {
        let body = response.into_body().collect().await;
        Ok(body.map_err(|error| self.cut_short(&error))?.to_bytes())
    }

    /// Makes the error of a response whose body ended too early.
    fn cut_short(&self, error: &(dyn std::error::Error + 'static)) -> ErrorReport {
        let reason = innermost(error);
        let message = match is_damage(error) {
            true => format!("the answer of {} cannot be used: {reason}", self.named()),
            false => {
                format!("{} closed the connection before the answer was complete", self.named())
            }
        };
        tracing::debug!(%reason, "{message}");
        ErrorReport::new(Code::SERVER_UNREACHABLE, message).hint("try again")
    }

    /// Makes the error of a response that is not a success, from its body.
    pub fn problem(&self, status: StatusCode, body: &[u8]) -> ErrorReport {
        problem(&self.endpoint, status, body)
    }

    fn unreachable(&self, error: &(dyn std::error::Error + 'static)) -> ErrorReport {
        unreachable(&self.endpoint, error)
    }

    fn named(&self) -> String {
        named(&self.endpoint)
    }
}

/// Makes the error of a response that is not a success, from its body.
pub(crate) fn problem(endpoint: &Endpoint, status: StatusCode, body: &[u8]) -> ErrorReport {
    serde_json::from_slice(body).unwrap_or_else(|_| {
        let message = format!("{} answered {status} without a reason", named(endpoint));
        ErrorReport::new(Code::PROTOCOL, message)
    })
}

/// Makes the error of a request that was not answered.
pub(crate) fn unreachable(
    endpoint: &Endpoint,
    error: &(dyn std::error::Error + 'static),
) -> ErrorReport {
    let reason = innermost(error);
    match endpoint {
        Endpoint::Unix(_) => {
            let message = format!("no platform answers at {endpoint}: {reason}");
            ErrorReport::new(Code::SERVER_UNREACHABLE, message).hint("start one with `snowmelt up`")
        }
        Endpoint::Tls(server) if io_error(error).is_some_and(connect::is_not_trusted) => {
            let message = format!("the certificate of {server} is not trusted: {reason}");
            ErrorReport::new(Code::CERTIFICATE, message)
                .hint("name the file of its authority: client.ca or SNOWMELT_CA")
        }
        Endpoint::Tls(server) => {
            let message = format!("{server} cannot be reached: {reason}");
            ErrorReport::new(Code::SERVER_UNREACHABLE, message)
                .hint("check the address, and that the server has one for other hosts: tls.listen")
        }
        Endpoint::InProcess(_) => {
            ErrorReport::new(Code::INTERNAL, format!("the embedded server ended: {reason}"))
        }
        Endpoint::Tcp(target) if distrust(error) == Some(Distrust::OfThem) => {
            let HostTarget { address, meant, .. } = &**target;
            let message = format!("what listens at {address} is not {meant}: {reason}");
            ErrorReport::new(Code::CERTIFICATE, message)
        }
        Endpoint::Tcp(target) if distrust(error) == Some(Distrust::OfUs) => {
            let HostTarget { address, meant, .. } = &**target;
            let message = format!("{meant} at {address} does not accept our certificate: {reason}");
            ErrorReport::new(Code::HOST_REFUSED, message)
                .hint("start this host with a new join token: `snowmelt cluster join-token`")
        }
        Endpoint::Tcp(_) => {
            let message = format!("{endpoint} cannot be reached: {reason}");
            // A host that refuses a connection is there; its process is not.
            let is_refused = kind(error) == Some(std::io::ErrorKind::ConnectionRefused);
            let code = if is_refused { Code::HOST_STOPPED } else { Code::SERVER_UNREACHABLE };
            ErrorReport::new(code, message)
        }
    }
}

fn named(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Unix(_) | Endpoint::InProcess(_) => "the platform".to_owned(),
        Endpoint::Tcp(target) => target.address.to_string(),
        Endpoint::Tls(server) => server.to_string(),
    }
}

/// Reads the JSON body of a successful response.
///
/// # Errors
/// A body that is not such a value.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, ErrorReport> {
    serde_json::from_slice(body).map_err(internal)
}

/// Returns the first cause of an error: the errors above it say only that a request failed.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// The kind of the I/O error among the causes.
fn kind(error: &(dyn std::error::Error + 'static)) -> Option<std::io::ErrorKind> {
    io_error(error).map(std::io::Error::kind)
}

/// A certificate that one side of a connection between hosts does not accept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Distrust {
    OfThem,
    OfUs,
}

/// Returns whose certificate an error is about.
fn distrust(error: &(dyn std::error::Error + 'static)) -> Option<Distrust> {
    use rustls::AlertDescription as Alert;
    match io_error(error)?.get_ref()?.downcast_ref()? {
        rustls::Error::InvalidCertificate(_) => Some(Distrust::OfThem),
        rustls::Error::AlertReceived(
            Alert::BadCertificate
            | Alert::CertificateExpired
            | Alert::CertificateRequired
            | Alert::CertificateUnknown
            // The signature of another authority of the same name.
            | Alert::DecryptError
            | Alert::UnknownCA,
        ) => Some(Distrust::OfUs),
        _ => None,
    }
}

fn is_damage(error: &(dyn std::error::Error + 'static)) -> bool {
    io_error(error).is_some_and(checksum_errors::is_damage)
}

fn io_error<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e std::io::Error> {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.find_map(|error| error.downcast_ref())
}

fn internal(error: impl std::fmt::Display) -> ErrorReport {
    ErrorReport::new(Code::INTERNAL, error.to_string())
}
