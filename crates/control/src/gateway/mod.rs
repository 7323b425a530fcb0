//! HTTP: routes, and the frames of a query's answer. The socket and the network have the same
//! routes; the table in [`crate::access::routes`] says who may use which.

mod answers;
mod bursts;
mod doors;
mod files;
mod health;
mod hosts;
pub(crate) mod images;
mod keys;
mod leases;
mod queries;
mod quotas;
mod udfs;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Extension, Router};
use serde::Deserialize;
use snowmelt_api::{BatchRequest, FunctionSpec, FunctionSummary, InvokeRequest, ShutdownRequest};
use snowmelt_rpc::Problem;
use snowmelt_rpc::body::{self, json};
use snowmelt_types::{Code, ErrorReport, FunctionName, InvocationId, JobId, Right};

use crate::access::identity::Identity;
use crate::platform::GatewayPlatform;
use crate::platform::prune::prune;
use crate::reports::audit::AuditNote;
use crate::reports::metrics;
use crate::state::backups;
use crate::state::records::FunctionId;
use answers::{HandlerResult, answered, hold, take_room};
pub(crate) use doors::{Door, entry, remote_clients, router};

fn routes(platform: Arc<GatewayPlatform>) -> Router {
    let of_images = images::router(platform.images.clone());
    let of_udfs = udfs::router(Arc::clone(&platform));
    let of_files = files::router(Arc::clone(&platform));
    let of_keys = keys::router(Arc::clone(&platform));
    let of_quotas = quotas::router(Arc::clone(&platform));
    let of_leases = leases::router(Arc::clone(&platform));
    let of_hosts = hosts::router(Arc::clone(&platform));
    Router::new()
        .route("/v1/status", get(status))
        .route("/v1/figures", get(figures))
        .route("/metrics", get(metrics))
        .route("/openapi.json", get(openapi))
        .route("/v1/shutdown", post(shutdown))
        .route("/v1/backups", post(back_up))
        .route("/v1/prunings", post(prune_all))
        .route("/v1/queries", post(queries::run))
        .route("/v1/functions", get(functions).post(deploy))
        .route("/v1/packages", post(pack))
        .route("/v1/wheels/{file}", post(keep_wheel))
        .route("/v1/functions/{name}", get(show).delete(remove))
        .route("/v1/functions/{name}/invocations", post(invoke))
        .route("/v1/functions/{name}/batches", post(invoke_all))
        .route("/v1/functions/{name}/bursts", post(bursts::start_deployed))
        .route("/v1/functions/{name}/logs", get(logs))
        .route("/v1/invocations/{id}", get(invocation))
        .route("/v1/bursts", get(bursts::list).post(bursts::start))
        .route("/v1/bursts/{job}", get(bursts::status).delete(bursts::remove))
        .route("/v1/bursts/{job}/answer", get(bursts::answer))
        .route("/v1/trees", get(trees))
        .route("/v1/networks", get(networks))
        .route("/v1/networks/{job}", get(network))
        .route("/v1/networks/{job}/trace", post(trace))
        .with_state(platform)
        .merge(of_images)
        .merge(of_udfs)
        .merge(of_files)
        .merge(of_keys)
        .merge(of_quotas)
        .merge(of_leases)
        .merge(of_hosts)
        .fallback(unknown)
}

async fn status(State(platform): State<Arc<GatewayPlatform>>, identity: Identity) -> HandlerResult {
    json(StatusCode::OK, &platform.status_for(&identity).await?)
}

async fn figures(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
) -> HandlerResult {
    json(StatusCode::OK, &platform.figures_for(&identity))
}

/// Answers operators with all metrics, and others with the durations of their own tenant.
async fn metrics(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
) -> HandlerResult {
    let headers = [(header::CONTENT_TYPE, metrics::CONTENT_TYPE)];
    let text = if identity.is_operator() {
        metrics::text(platform.figures(), platform.times(None))
    } else {
        let mut times = platform.times(Some(&identity.tenant));
        times.calls.retain(|(_, series, _)| identity.permits(&series.function));
        if identity.is_limited() {
            times.queries.clear();
        }
        metrics::text_of_times(times)
    };
    let text = text.map_err(|error| ErrorReport::new(Code::INTERNAL, error.to_string()))?;
    Ok((headers, text).into_response())
}

async fn openapi() -> HandlerResult {
    json(StatusCode::OK, &snowmelt_api::openapi::document(snowmelt_rpc::version()))
}

async fn shutdown(
    State(platform): State<Arc<GatewayPlatform>>,
    body::RequestBody(body): body::RequestBody,
) -> HandlerResult {
    let request: ShutdownRequest =
        if body.is_empty() { ShutdownRequest::default() } else { body::parse(&body)? };
    if let Some(grace_ms) = request.grace_ms {
        platform.grace.set(Duration::from_millis(grace_ms));
    }
    platform.shutdown.cancel();
    Ok(StatusCode::ACCEPTED.into_response())
}

async fn back_up(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
) -> HandlerResult {
    identity.check_operator("copy the state")?;
    if platform.lead.is_some() {
        let message = "the records are in etcd, which has copies of its own";
        return Err(ErrorReport::new(Code::OPTION, message)
            .hint("etcdctl snapshot save FILE, and a copy of the folder `store.folder`")
            .into());
    }
    let store = platform.functions.records().file();
    let store = store.filter(|_| !platform.private).ok_or_else(|| {
        ErrorReport::new(Code::OPTION, "a platform that ends with its client copies no state")
    })?;
    json(StatusCode::CREATED, &backups::make(store).await?)
}

async fn prune_all(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    body::RequestBody(body): body::RequestBody,
) -> HandlerResult {
    let request = body::parse(&body)?;
    json(StatusCode::OK, &prune(platform, identity, request).await?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TreesQuery {
    of: Option<String>,
}

async fn trees(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    query: Result<Query<TreesQuery>, QueryRejection>,
) -> HandlerResult {
    let Query(TreesQuery { of }) = query.map_err(rejected)?;
    let trees = &platform.bursts.trees;
    let mut names = platform.trees_for(&identity, trees.names()).await?;
    if let Some(of) = of {
        names = platform.trees_of(identity.tenant, &of, names).await?;
    }
    json(StatusCode::OK, &trees.list(&platform.hosts, &names).await)
}

async fn networks(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
) -> HandlerResult {
    let mut networks = platform.bursts.networks.networks();
    networks.retain(|network| {
        identity.sees(&network.tenant) && identity.permits(network.function.as_str())
    });
    json(StatusCode::OK, &networks)
}

async fn network(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    Path(job): Path<String>,
) -> HandlerResult {
    let job = JobId::from(job);
    platform.bursts.networks.check(&job, |tenant, function| {
        identity.sees(tenant) && identity.permits(function.as_str())
    })?;
    json(StatusCode::OK, &platform.bursts.networks.network(&job).await?)
}

async fn trace(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    Path(job): Path<String>,
    body::RequestBody(body): body::RequestBody,
) -> HandlerResult {
    let job = JobId::from(job);
    let asked = body::parse(&body)?;
    platform.bursts.networks.check(&job, |tenant, function| {
        identity.sees(tenant) && identity.permits(function.as_str())
    })?;
    json(StatusCode::OK, &platform.bursts.networks.trace(&job, asked).await?)
}

async fn functions(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
) -> HandlerResult {
    let mut functions = platform.functions.list(&identity.tenant).await?;
    functions.retain(|function| identity.permits(function.name.as_str()));
    functions.iter_mut().for_each(|function| hide_environment(&identity, function));
    json(StatusCode::OK, &functions)
}

/// Removes the environment of a function for those who may not deploy it: it may have what only they
/// are to know.
fn hide_environment(identity: &Identity, function: &mut FunctionSummary) {
    if !identity.has(Right::Develop) {
        function.options.environment.clear();
    }
}

async fn deploy(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    note: Option<Extension<AuditNote>>,
    body::RequestBody(body): body::RequestBody,
) -> HandlerResult {
    let spec: FunctionSpec = body::parse(&body)?;
    note_object(note, spec.name.as_str());
    identity.check(spec.tenant.as_ref())?;
    identity.check_function(&spec)?;
    platform.disk.check(&identity.tenant, body.len() as u64).await?;
    json(StatusCode::CREATED, &platform.functions.deploy(identity.tenant, spec).await?)
}

/// Says what an action is about, where its path does not.
fn note_object(note: Option<Extension<AuditNote>>, object: &str) {
    if let Some(Extension(note)) = note {
        note.object(object);
    }
}

async fn pack(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    body::RequestBody(body): body::RequestBody,
) -> HandlerResult {
    platform.disk.check(&identity.tenant, body.len() as u64).await?;
    let packed = platform.functions.pack(&identity.tenant, body::parse(&body)?).await?;
    json(StatusCode::CREATED, &packed)
}

async fn keep_wheel(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    Path(file): Path<String>,
    body::RequestBody(body): body::RequestBody,
) -> HandlerResult {
    let kept = platform.functions.keep_wheel(&identity.tenant, file, body.to_vec()).await?;
    json(StatusCode::CREATED, &kept)
}

async fn show(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    Path(name): Path<String>,
) -> HandlerResult {
    let mut shown = platform.functions.show(&function(identity.clone(), name)?).await?;
    hide_environment(&identity, &mut shown);
    json(StatusCode::OK, &shown)
}

async fn remove(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    Path(name): Path<String>,
) -> HandlerResult {
    platform.functions.remove(&function(identity, name)?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn invoke(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    Path(name): Path<String>,
    body::RequestBody(body): body::RequestBody,
) -> HandlerResult {
    let id = function(identity, name)?;
    let request = body::parse::<InvokeRequest>(&body)?;
    if !request.asynchronous {
        return answered(platform.functions.invoke(&id, request).await?);
    }
    if platform.private {
        let message = "an asynchronous call needs a platform that keeps running";
        return Err(ErrorReport::new(Code::OPTION, message).hint("start one: snowmelt up").into());
    }
    platform.disk.check(&id.tenant, body.len() as u64).await?;
    json(StatusCode::ACCEPTED, &platform.async_calls.submit(&id, request).await?)
}

async fn invoke_all(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    Path(name): Path<String>,
    body::RequestBody(body): body::RequestBody,
) -> HandlerResult {
    let id = function(identity, name)?;
    let request = body::parse::<BatchRequest>(&body)?;
    let mut invocations = platform.functions.invoke_all(&id, request).await?;
    let rooms = invocations.iter_mut().filter_map(take_room).collect();
    Ok(hold(json(StatusCode::OK, &invocations)?, rooms))
}

async fn invocation(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    Path(id): Path<String>,
) -> HandlerResult {
    let id = InvocationId::from(id);
    let tenant = &identity.tenant;
    let permits = |function: &FunctionName| identity.permits(function.as_str());
    json(StatusCode::OK, &platform.async_calls.invocation(tenant, &id, permits).await?)
}

#[derive(Deserialize)]
struct LogsQuery {
    invocation: Option<String>,
    tail: Option<u32>,
}

async fn logs(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    Path(name): Path<String>,
    query: Result<Query<LogsQuery>, QueryRejection>,
) -> HandlerResult {
    let Query(query) = query.map_err(rejected)?;
    let invocation = query.invocation.map(InvocationId::from);
    let entries =
        platform.functions.logs(&function(identity, name)?, invocation, query.tail).await?;
    json(StatusCode::OK, &entries)
}

fn rejected(rejection: QueryRejection) -> ErrorReport {
    ErrorReport::new(Code::OPTION, rejection.body_text())
}

async fn unknown(identity: Identity, request: Request) -> Problem {
    entry::no_route(&identity, request.method(), request.uri().path())
}

/// Returns the identifier of the function with this name, of the tenant of the request.
pub(crate) fn function(identity: Identity, name: String) -> Result<FunctionId, Problem> {
    let name = FunctionName::try_from(name)
        .map_err(|message| ErrorReport::new(Code::FUNCTION_NAME, message))?;
    Ok(FunctionId { tenant: identity.tenant, name })
}

#[cfg(test)]
mod tests;
