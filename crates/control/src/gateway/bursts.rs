//! Bursts over HTTP: each is an object of its own, and requests that wait for it claim it.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use snowmelt_api::{BurstCalls, BurstRequest};
use snowmelt_rpc::body::{self, json};
use snowmelt_types::JobId;

use super::answers::HandlerResult;
use super::function;
use crate::access::identity::Identity;
use crate::bursts::{BurstClaim, BurstJob};
use crate::platform::GatewayPlatform;

pub(super) async fn start(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    body::RequestBody(body): body::RequestBody,
) -> HandlerResult {
    let request: BurstRequest = body::parse(&body)?;
    identity.check(request.function.tenant.as_ref())?;
    let asynchronous = request.asynchronous;
    answered(platform.bursts.start(identity.tenant, request).await?, asynchronous).await
}

pub(super) async fn start_deployed(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    Path(name): Path<String>,
    body::RequestBody(body): body::RequestBody,
) -> HandlerResult {
    let calls: BurstCalls = body::parse(&body)?;
    let record = platform.functions.record(&function(identity, name)?).await?;
    let asynchronous = calls.asynchronous;
    answered(platform.bursts.start_accepted(record, calls).await?, asynchronous).await
}

pub(super) async fn list(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
) -> HandlerResult {
    json(StatusCode::OK, &platform.bursts.jobs.list(&identity.tenant))
}

pub(super) async fn status(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    Path(job): Path<String>,
) -> HandlerResult {
    let job = platform.bursts.jobs.find(&identity.tenant, &JobId::from(job))?;
    json(StatusCode::OK, &job.status())
}

pub(super) async fn answer(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    Path(job): Path<String>,
) -> HandlerResult {
    let job = platform.bursts.jobs.find(&identity.tenant, &JobId::from(job))?;
    waited(job.claim(), &job).await
}

pub(super) async fn remove(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    Path(job): Path<String>,
) -> HandlerResult {
    platform.bursts.remove(&identity.tenant, &JobId::from(job)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn answered(job: Arc<BurstJob>, asynchronous: bool) -> HandlerResult {
    if asynchronous {
        return json(StatusCode::ACCEPTED, &job.status());
    }
    waited(job.claim(), &job).await
}

/// Waits for the outcome of a burst. A client that disconnects drops this future, and with it its
/// claim.
async fn waited(_claim: BurstClaim, job: &BurstJob) -> HandlerResult {
    let answer = job.outcome().await?.read().await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], answer).into_response())
}
