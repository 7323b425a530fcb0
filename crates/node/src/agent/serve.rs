//! The agent over HTTP, for a control on another host.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use futures::StreamExt;
use serde::de::DeserializeOwned;
use snowmelt_types::{Code, Digest, ErrorReport, JobId};

use super::Agent;
use super::api::ReadyWithin;

/// The largest request: code and events by value, never data.
const MOST_REQUEST_BYTES: usize = 256 << 20;

/// The secret that the hosts of a cluster share. It shows in no log.
#[derive(Clone)]
pub struct Token(Arc<str>);

impl Token {
    /// Reads it from what a file says.
    ///
    /// # Errors
    /// What is wrong with it: at least 16 printable characters are asked for.
    pub fn new(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.len() < 16 || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("a token has at least 16 printable characters and no space".to_owned());
        }
        Ok(Self(text.into()))
    }

    /// The value of the `authorization` header.
    pub fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Whether a request carries it. Digests are compared, so that the time it takes tells nothing
    /// of the token.
    pub fn is_in(&self, header: Option<&str>) -> bool {
        header.is_some_and(|header| Digest::of(header) == Digest::of(self.header()))
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// Whether a request with the token came over a connection: its server puts one of these
/// into each of its requests, and may let go of those who have none.
#[derive(Clone, Debug, Default)]
pub struct Admission(Arc<AtomicBool>);

impl Admission {
    /// Whether one came.
    pub fn is_given(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The routes of the table in [`super::api`].
pub fn router(agent: Agent, token: Token) -> Router {
    Router::new()
        .route("/v1/host", get(facts))
        .route("/v1/code", post(upload))
        .route("/v1/jobs", post(open))
        .route("/v1/jobs/{id}", delete(close))
        .route("/v1/jobs/{id}/ready", post(ready))
        .route("/v1/jobs/{id}/calls", post(call))
        .route("/v1/jobs/{id}/end", post(end))
        .route("/v1/jobs/{id}/network", get(network))
        .route("/v1/jobs/{id}/way", post(route))
        .layer(DefaultBodyLimit::max(MOST_REQUEST_BYTES))
        .layer(middleware::from_fn_with_state(token, admit))
        .with_state(agent)
}

/// An error on its way to another host, as problem+json (RFC 9457).
#[derive(Debug)]
pub struct Problem(StatusCode, ErrorReport);

impl From<ErrorReport> for Problem {
    fn from(report: ErrorReport) -> Self {
        Self(StatusCode::UNPROCESSABLE_ENTITY, report)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let headers = [(header::CONTENT_TYPE, "application/problem+json")];
        (self.0, headers, serde_json::to_vec(&self.1).unwrap_or_default()).into_response()
    }
}

/// Lets only requests with the token of the cluster through.
pub async fn admit(State(token): State<Token>, request: Request, next: Next) -> Response {
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if token.is_in(given) {
        if let Some(Admission(given)) = request.extensions().get() {
            given.store(true, Ordering::Relaxed);
        }
        return next.run(request).await;
    }
    let report = ErrorReport::new(Code::HOST_REFUSED, "the request does not carry our token")
        .hint("all hosts of a cluster need the same token file");
    // Nothing of what may follow is read.
    let close = [(header::CONNECTION, "close")];
    (close, Problem(StatusCode::UNAUTHORIZED, report)).into_response()
}

async fn facts(State(agent): State<Agent>) -> Response {
    axum::Json(agent.facts()).into_response()
}

async fn upload(State(agent): State<Agent>, body: Bytes) -> Result<Response, Problem> {
    Ok(axum::Json(agent.upload(parse(&body)?).await?).into_response())
}

async fn open(State(agent): State<Agent>, body: Bytes) -> Result<Response, Problem> {
    Ok(axum::Json(agent.open(parse(&body)?).await?).into_response())
}

async fn ready(
    State(agent): State<Agent>,
    Path(job): Path<String>,
    body: Bytes,
) -> Result<Response, Problem> {
    let ReadyWithin { within_ms } = parse(&body)?;
    let within = Duration::from_millis(within_ms);
    Ok(axum::Json(agent.ready(&JobId::from(job), within).await?).into_response())
}

/// Its lines follow as ranks end. A client that goes away drops the receiver, which ends the rest.
async fn call(
    State(agent): State<Agent>,
    Path(job): Path<String>,
    body: Bytes,
) -> Result<Response, Problem> {
    let ends = agent.call(&JobId::from(job), parse(&body)?)?;
    let lines = tokio_stream::wrappers::ReceiverStream::new(ends).map(|end| {
        let mut line = serde_json::to_vec(&end).unwrap_or_default();
        line.push(b'\n');
        Ok::<_, Infallible>(Bytes::from(line))
    });
    let headers = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((headers, Body::from_stream(lines)).into_response())
}

async fn end(
    State(agent): State<Agent>,
    Path(job): Path<String>,
    body: Bytes,
) -> Result<StatusCode, Problem> {
    agent.end(&JobId::from(job), parse(&body)?);
    Ok(StatusCode::NO_CONTENT)
}

async fn network(State(agent): State<Agent>, Path(job): Path<String>) -> Result<Response, Problem> {
    Ok(axum::Json(agent.network(&JobId::from(job)).await?).into_response())
}

async fn route(
    State(agent): State<Agent>,
    Path(job): Path<String>,
    body: Bytes,
) -> Result<Response, Problem> {
    Ok(axum::Json(agent.route(&JobId::from(job), parse(&body)?).await?).into_response())
}

async fn close(State(agent): State<Agent>, Path(job): Path<String>) -> StatusCode {
    agent.close(&JobId::from(job));
    StatusCode::NO_CONTENT
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| {
        let message = format!("control and this host speak different versions: {error}");
        Problem(StatusCode::BAD_REQUEST, ErrorReport::new(Code::PROTOCOL, message))
    })
}
