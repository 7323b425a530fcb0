//! Bursts over HTTP: each is an object of its own, and requests that wait for it claim it.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use snowmelt_api::{BurstCalls, BurstRequest};
use snowmelt_rpc::body::{self, json};
use snowmelt_types::{ErrorReport, JobId};

use super::answers::HandlerResult;
use super::{function, note_object};
use crate::access::identity::Identity;
use crate::bursts::{BurstClaim, BurstJob, missing};
use crate::platform::GatewayPlatform;
use crate::reports::audit::AuditNote;

pub(super) async fn start(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    note: Option<Extension<AuditNote>>,
    body::RequestBody(body): body::RequestBody,
) -> HandlerResult {
    let request: BurstRequest = body::parse(&body)?;
    note_object(note, request.function.name.as_str());
    identity.check(request.function.tenant.as_ref())?;
    identity.check_function(&request.function)?;
    identity.check_network(request.network.as_ref())?;
    let asynchronous = request.asynchronous;
    let job = platform.bursts.start(identity.tenant.clone(), request).await?;
    answered(permitted(&identity, job)?, asynchronous).await
}

pub(super) async fn start_deployed(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    Path(name): Path<String>,
    body::RequestBody(body): body::RequestBody,
) -> HandlerResult {
    let calls: BurstCalls = body::parse(&body)?;
    identity.check_network(calls.network.as_ref())?;
    let record = platform.functions.record(&function(identity.clone(), name)?).await?;
    let asynchronous = calls.asynchronous;
    let job = platform.bursts.start_accepted(record, calls).await?;
    answered(permitted(&identity, job)?, asynchronous).await
}

pub(super) async fn list(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
) -> HandlerResult {
    let mut listed = platform.bursts.jobs.list(&identity.tenant);
    listed.retain(|job| identity.permits(job.function.as_str()));
    json(StatusCode::OK, &listed)
}

pub(super) async fn status(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    Path(job): Path<String>,
) -> HandlerResult {
    let job = find(&platform, &identity, job)?;
    json(StatusCode::OK, &job.status())
}

pub(super) async fn answer(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    Path(job): Path<String>,
) -> HandlerResult {
    let job = find(&platform, &identity, job)?;
    waited(job.claim(), &job).await
}

pub(super) async fn remove(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    Path(job): Path<String>,
) -> HandlerResult {
    let job = find(&platform, &identity, job)?;
    platform.bursts.remove(&identity.tenant, &job.id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn find(
    platform: &GatewayPlatform,
    identity: &Identity,
    job: String,
) -> Result<Arc<BurstJob>, ErrorReport> {
    permitted(identity, platform.bursts.jobs.find(&identity.tenant, &JobId::from(job))?)
}

/// Refuses a burst of a function that the request may not use, as if there were none. A request may
/// name the identifier of any burst of its tenant.
fn permitted(identity: &Identity, job: Arc<BurstJob>) -> Result<Arc<BurstJob>, ErrorReport> {
    if identity.permits(job.function.as_str()) { Ok(job) } else { Err(missing(&job.id)) }
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
