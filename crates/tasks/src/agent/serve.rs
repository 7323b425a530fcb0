//! The agent over HTTP, for a control on another host.

use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use serde::de::DeserializeOwned;
use snowmelt_rpc::{Credential, Problem, admit, of_control};
use snowmelt_types::{Code, Digest, ErrorReport, JobId};

use super::api::{EndsFrom, ReadyWithin};
use super::{Agent, leases};
use crate::host::TaskHost;
use crate::remote;

/// Returns the routes of the tables in [`super::api`] and [`crate::remote`]. `host` is that of
/// the agent's node. Control alone gives orders.
pub fn router(agent: Agent, host: TaskHost, credential: Credential) -> Router {
    let tasks = remote::routes::all(host, credential.clone());
    let leases = leases::routes(agent.clone());
    let orders = Router::new()
        .route("/v1/host", get(facts))
        .route("/v1/code", post(upload))
        .route("/v1/functions", get(prepared_functions))
        .route("/v1/functions/{digest}", put(prepare_function).delete(forget_function))
        .route("/v1/functions/{digest}/calls", post(call_function))
        .route("/v1/jobs", post(open))
        .route("/v1/images/places", post(place))
        .route("/v1/images/bytes", get(image_bytes))
        .route("/v1/jobs/{id}", delete(close))
        .route("/v1/jobs/{id}/ready", post(ready))
        .route("/v1/jobs/{id}/calls", post(call))
        .route("/v1/jobs/{id}/ends", post(ends))
        .route("/v1/jobs/{id}/end", post(end))
        .route("/v1/jobs/{id}/network", get(network))
        .route("/v1/jobs/{id}/route", post(route))
        .with_state(agent)
        .merge(leases)
        .layer(middleware::from_fn_with_state(credential.clone(), of_control));
    orders.merge(tasks).layer(middleware::from_fn_with_state(credential, admit))
}

async fn facts(State(agent): State<Agent>) -> Response {
    axum::Json(agent.facts()).into_response()
}

async fn place(State(agent): State<Agent>, body: Bytes) -> Result<StatusCode, Problem> {
    agent.place(parse(&body)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn image_bytes(State(agent): State<Agent>) -> Result<Response, Problem> {
    Ok(axum::Json(agent.image_bytes().await?).into_response())
}

async fn upload(State(agent): State<Agent>, body: Bytes) -> Result<Response, Problem> {
    Ok(axum::Json(agent.upload(parse(&body)?).await?).into_response())
}

async fn prepared_functions(State(agent): State<Agent>) -> Response {
    axum::Json(agent.prepared_functions()).into_response()
}

async fn prepare_function(
    State(agent): State<Agent>,
    Path(digest): Path<String>,
    body: Bytes,
) -> Result<StatusCode, Problem> {
    agent.prepare_function(named(&digest)?, parse(&body)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn call_function(
    State(agent): State<Agent>,
    Path(digest): Path<String>,
    body: Bytes,
) -> Result<Response, Problem> {
    Ok(axum::Json(agent.call_function(&named(&digest)?, parse(&body)?).await?).into_response())
}

async fn forget_function(
    State(agent): State<Agent>,
    Path(digest): Path<String>,
) -> Result<StatusCode, Problem> {
    agent.forget_function(&named(&digest)?);
    Ok(StatusCode::NO_CONTENT)
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

async fn call(
    State(agent): State<Agent>,
    Path(job): Path<String>,
    body: Bytes,
) -> Result<StatusCode, Problem> {
    agent.call(&JobId::from(job), parse(&body)?)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn ends(
    State(agent): State<Agent>,
    Path(job): Path<String>,
    body: Bytes,
) -> Result<Response, Problem> {
    let EndsFrom { from, within_ms } = parse(&body)?;
    let within = Duration::from_millis(within_ms);
    Ok(axum::Json(agent.ends(&JobId::from(job), from, within).await?).into_response())
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

fn named(digest: &str) -> Result<Digest, Problem> {
    Digest::parse(digest).ok_or_else(|| {
        let report = ErrorReport::new(Code::PROTOCOL, format!("`{digest}` is not a digest"));
        Problem { status: StatusCode::BAD_REQUEST, report }
    })
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| {
        let message = format!("control and this host speak different versions: {error}");
        let report = ErrorReport::new(Code::PROTOCOL, message);
        Problem { status: StatusCode::BAD_REQUEST, report }
    })
}
