//! HTTP on a unix socket: routes, status codes, and the frames of a query's answer.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use snowmelt_types::{Code, ErrorReport, ExitClass, FunctionName, InvocationId, JobId};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use crate::api::{BatchRequest, InvokeRequest};
use crate::metrics;
use crate::platform::Platform;

/// The largest request: code and events by value, never data.
const MOST_REQUEST_BYTES: usize = 256 << 20;

/// Frames of an answer that wait for a slow client before the query waits too.
const FRAMES_AHEAD: usize = 8;

type Answer = Result<Response, Problem>;

/// An error on its way to a client, as problem+json (RFC 9457).
struct Problem(ErrorReport);

impl From<ErrorReport> for Problem {
    fn from(report: ErrorReport) -> Self {
        Self(report)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let headers = [(header::CONTENT_TYPE, "application/problem+json")];
        let body = serde_json::to_vec(&self.0).unwrap_or_default();
        (status_of(&self.0), headers, body).into_response()
    }
}

fn status_of(report: &ErrorReport) -> StatusCode {
    let code = report.known_code();
    if code == Code::FUNCTION_MISSING || code == Code::INVOCATION_MISSING {
        return StatusCode::NOT_FOUND;
    }
    match code.exit {
        ExitClass::Input => StatusCode::UNPROCESSABLE_ENTITY,
        ExitClass::Usage => StatusCode::BAD_REQUEST,
        ExitClass::Platform | ExitClass::Interrupted => StatusCode::SERVICE_UNAVAILABLE,
        ExitClass::Timeout => StatusCode::GATEWAY_TIMEOUT,
    }
}

/// The routes of the table in [`crate::api`].
pub(crate) fn router(platform: Arc<Platform>) -> Router {
    Router::new()
        .route("/v1/status", get(status))
        .route("/v1/figures", get(figures))
        .route("/metrics", get(metrics))
        .route("/v1/shutdown", post(shutdown))
        .route("/v1/queries", post(query))
        .route("/v1/functions", get(functions).post(deploy))
        .route("/v1/packages", post(pack))
        .route("/v1/wheels/{file}", post(keep_wheel))
        .route("/v1/functions/{name}", get(function).delete(remove))
        .route("/v1/functions/{name}/invocations", post(invoke))
        .route("/v1/functions/{name}/batches", post(invoke_all))
        .route("/v1/functions/{name}/bursts", post(burst_deployed))
        .route("/v1/functions/{name}/logs", get(logs))
        .route("/v1/invocations/{id}", get(invocation))
        .route("/v1/bursts", post(burst))
        .route("/v1/hosts", get(hosts))
        .route("/v1/networks", get(networks))
        .route("/v1/networks/{job}", get(network))
        .route("/v1/networks/{job}/trace", post(trace))
        .fallback(unknown)
        .layer(DefaultBodyLimit::max(MOST_REQUEST_BYTES))
        .with_state(platform)
}

async fn status(State(platform): State<Arc<Platform>>) -> Answer {
    json(StatusCode::OK, &platform.status().await)
}

async fn figures(State(platform): State<Arc<Platform>>) -> Answer {
    json(StatusCode::OK, &platform.figures())
}

async fn metrics(State(platform): State<Arc<Platform>>) -> Response {
    let headers = [(header::CONTENT_TYPE, metrics::CONTENT_TYPE)];
    (headers, metrics::text(&platform.figures())).into_response()
}

async fn shutdown(State(platform): State<Arc<Platform>>) -> StatusCode {
    platform.shutdown.cancel();
    StatusCode::ACCEPTED
}

/// Runs a query; its frames follow as they come. A client that goes away drops the receiver, which
/// the query notices.
async fn query(State(platform): State<Arc<Platform>>, body: Bytes) -> Answer {
    let request = parse(&body)?;
    let (sender, receiver) = mpsc::channel(FRAMES_AHEAD);
    tokio::spawn(async move { platform.queries.run(request, sender).await });
    let bytes = ReceiverStream::new(receiver).map(Ok::<_, std::convert::Infallible>);
    let headers = [(header::CONTENT_TYPE, "application/vnd.snowmelt.frames")];
    Ok((headers, Body::from_stream(bytes)).into_response())
}

/// A client that goes away drops this, and with it what still runs.
async fn burst(State(platform): State<Arc<Platform>>, body: Bytes) -> Answer {
    json(StatusCode::OK, &platform.bursts.run(parse(&body)?).await?)
}

async fn burst_deployed(
    State(platform): State<Arc<Platform>>,
    Path(name): Path<String>,
    body: Bytes,
) -> Answer {
    let calls = parse(&body)?;
    let record = platform.functions.record(&function_name(name)?).await?;
    json(StatusCode::OK, &platform.bursts.run_accepted(record, calls).await?)
}

async fn hosts(State(platform): State<Arc<Platform>>) -> Answer {
    json(StatusCode::OK, &platform.hosts.list())
}

async fn networks(State(platform): State<Arc<Platform>>) -> Answer {
    json(StatusCode::OK, &platform.bursts.jobs.networks())
}

async fn network(State(platform): State<Arc<Platform>>, Path(job): Path<String>) -> Answer {
    json(StatusCode::OK, &platform.bursts.jobs.network(&JobId::from(job)).await?)
}

async fn trace(
    State(platform): State<Arc<Platform>>,
    Path(job): Path<String>,
    body: Bytes,
) -> Answer {
    let asked = parse(&body)?;
    json(StatusCode::OK, &platform.bursts.jobs.trace(&JobId::from(job), asked).await?)
}

async fn functions(State(platform): State<Arc<Platform>>) -> Answer {
    json(StatusCode::OK, &platform.functions.list().await?)
}

async fn deploy(State(platform): State<Arc<Platform>>, body: Bytes) -> Answer {
    json(StatusCode::CREATED, &platform.functions.deploy(parse(&body)?).await?)
}

async fn pack(State(platform): State<Arc<Platform>>, body: Bytes) -> Answer {
    json(StatusCode::CREATED, &platform.functions.pack(parse(&body)?).await?)
}

async fn keep_wheel(
    State(platform): State<Arc<Platform>>,
    Path(file): Path<String>,
    body: Bytes,
) -> Answer {
    json(StatusCode::CREATED, &platform.functions.keep_wheel(file, body.to_vec()).await?)
}

async fn function(State(platform): State<Arc<Platform>>, Path(name): Path<String>) -> Answer {
    json(StatusCode::OK, &platform.functions.show(&function_name(name)?).await?)
}

async fn remove(State(platform): State<Arc<Platform>>, Path(name): Path<String>) -> Answer {
    platform.functions.remove(&function_name(name)?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn invoke(
    State(platform): State<Arc<Platform>>,
    Path(name): Path<String>,
    body: Bytes,
) -> Answer {
    let (name, request) = (function_name(name)?, parse::<InvokeRequest>(&body)?);
    if !request.asynchronous {
        return json(StatusCode::OK, &platform.functions.invoke(&name, request).await?);
    }
    if platform.private {
        let message = "an asynchronous call needs a platform that keeps running";
        return Err(Problem(
            ErrorReport::new(Code::OPTION, message).hint("start one: snowmelt up"),
        ));
    }
    json(StatusCode::ACCEPTED, &platform.functions.submit(&name, request).await?)
}

async fn invoke_all(
    State(platform): State<Arc<Platform>>,
    Path(name): Path<String>,
    body: Bytes,
) -> Answer {
    let (name, request) = (function_name(name)?, parse::<BatchRequest>(&body)?);
    json(StatusCode::OK, &platform.functions.invoke_all(&name, request).await?)
}

async fn invocation(State(platform): State<Arc<Platform>>, Path(id): Path<String>) -> Answer {
    json(StatusCode::OK, &platform.functions.invocation(&InvocationId::from(id)).await?)
}

#[derive(Deserialize)]
struct LogsQuery {
    invocation: Option<String>,
    tail: Option<u32>,
}

async fn logs(
    State(platform): State<Arc<Platform>>,
    Path(name): Path<String>,
    Query(query): Query<LogsQuery>,
) -> Answer {
    let invocation = query.invocation.map(InvocationId::from);
    let entries = platform.functions.logs(&function_name(name)?, invocation, query.tail).await?;
    json(StatusCode::OK, &entries)
}

async fn unknown(request: axum::extract::Request) -> Problem {
    let message = format!("there is no {} {}", request.method(), request.uri().path());
    Problem(
        ErrorReport::new(Code::OPTION, message)
            .hint("the requests are listed in crates/control/src/api.rs"),
    )
}

fn function_name(name: String) -> Result<FunctionName, Problem> {
    FunctionName::try_from(name)
        .map_err(|message| Problem(ErrorReport::new(Code::FUNCTION_NAME, message)))
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    Ok(crate::request::parse(body)?)
}

fn json(status: StatusCode, value: &impl serde::Serialize) -> Answer {
    let body = serde_json::to_vec(value)
        .map_err(|error| Problem(ErrorReport::new(Code::INTERNAL, error.to_string())))?;
    Ok((status, [(header::CONTENT_TYPE, "application/json")], body).into_response())
}
