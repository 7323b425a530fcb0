//! Block images over HTTP: each request is about the images of its tenant.

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{delete, get, post};
use bytes::Bytes;
use snowmelt_api::{
    ConversionRequest, DifferenceRequest, ImageEvent, ImageRequest, ImageSource, PlatformKey,
    PruneRequest,
};
use snowmelt_rpc::body::{self, json};
use snowmelt_types::{Code, ErrorReport};
use tokio::sync::mpsc::Receiver;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::answers::HandlerResult;
use crate::access::identity::Identity;
use crate::images::{Images, Incoming, Place};

/// Returns the routes of images.
pub(crate) fn router(images: Images) -> Router {
    Router::new()
        .route("/v1/images", get(list))
        .route("/v1/images/{image}", delete(remove))
        .route("/v1/images/key", get(key))
        .route("/v1/images/details", post(detail))
        .route("/v1/images/conversions", post(convert))
        .route("/v1/images/pulls", post(pull))
        .route("/v1/images/pushes", post(push))
        .route("/v1/images/prefetches", post(warm))
        .route("/v1/images/verifications", post(verify))
        .route("/v1/images/comparisons", post(compare))
        .route("/v1/images/prunings", post(prune))
        .with_state(images)
}

/// Returns the images that a request is about.
fn own(images: &Images, identity: &Identity) -> Result<Images, ErrorReport> {
    identity.check_images()?;
    Ok(images.of(&identity.tenant))
}

async fn list(State(images): State<Images>, identity: Identity) -> HandlerResult {
    let images = own(&images, &identity)?;
    let listed = blocking(move || images.list()).await?;
    json(StatusCode::OK, &listed)
}

async fn key(State(images): State<Images>) -> HandlerResult {
    let key = blocking(move || images.key()).await?;
    json(StatusCode::OK, &PlatformKey { key })
}

async fn detail(
    State(images): State<Images>,
    identity: Identity,
    body::RequestBody(body): body::RequestBody,
) -> HandlerResult {
    let request: ImageRequest = body::parse(&body)?;
    identity.check_image(&request.image)?;
    json(StatusCode::OK, &own(&images, &identity)?.detail(request).await?)
}

async fn convert(
    State(images): State<Images>,
    identity: Identity,
    request: Request,
) -> HandlerResult {
    let images = own(&images, &identity)?;
    // Before a byte of the image is read.
    let place = identity.is_remote().then(|| images.place_of_remote()).transpose()?;
    let mut incoming = Incoming::new(request.into_body());
    let request: ConversionRequest = incoming.head().await?;
    if let ImageSource::Registry(from) = &request.source {
        identity.check_registry(from)?;
    }
    held(place, images.convert(request, incoming, identity.member()))
}

async fn pull(
    State(images): State<Images>,
    identity: Identity,
    body::RequestBody(body): body::RequestBody,
) -> HandlerResult {
    lines(own(&images, &identity)?.pull(body::parse(&body)?, identity.member()))
}

async fn push(
    State(images): State<Images>,
    identity: Identity,
    body::RequestBody(body): body::RequestBody,
) -> HandlerResult {
    lines(own(&images, &identity)?.push(body::parse(&body)?, identity.member()))
}

async fn warm(
    State(images): State<Images>,
    identity: Identity,
    body::RequestBody(body): body::RequestBody,
) -> HandlerResult {
    lines(own(&images, &identity)?.warm(body::parse(&body)?, identity.member()))
}

async fn verify(
    State(images): State<Images>,
    identity: Identity,
    body::RequestBody(body): body::RequestBody,
) -> HandlerResult {
    let request: ImageRequest = body::parse(&body)?;
    identity.check_image(&request.image)?;
    lines(own(&images, &identity)?.verify(request, identity.member()))
}

async fn compare(
    State(images): State<Images>,
    identity: Identity,
    body::RequestBody(body): body::RequestBody,
) -> HandlerResult {
    let request: DifferenceRequest = body::parse(&body)?;
    identity.check_image(&request.first)?;
    identity.check_image(&request.second)?;
    lines(own(&images, &identity)?.compare(request, identity.member()))
}

async fn prune(
    State(images): State<Images>,
    identity: Identity,
    body::RequestBody(body): body::RequestBody,
) -> HandlerResult {
    let request: PruneRequest = body::parse(&body)?;
    if request.blocks {
        // The cache is one for all tenants.
        identity.check_operator("remove cached blocks")?;
    }
    let images = own(&images, &identity)?;
    let packages = images.deployed_packages().await?;
    let pruned = blocking(move || images.prune(&request, &packages)).await?;
    json(StatusCode::OK, &pruned)
}

async fn remove(
    State(images): State<Images>,
    identity: Identity,
    Path(name): Path<String>,
) -> HandlerResult {
    let images = own(&images, &identity)?;
    blocking(move || images.remove(&name)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Answers with the events of work as lines of JSON. A client that disconnects drops the receiver,
/// which ends the work.
fn lines(events: Receiver<ImageEvent>) -> HandlerResult {
    held(None, events)
}

/// Answers as [`lines`], and holds a place until the work has ended.
fn held(place: Option<Place>, events: Receiver<ImageEvent>) -> HandlerResult {
    let lines = ReceiverStream::new(events).map(move |event| {
        let _held = &place;
        let mut line = serde_json::to_vec(&event)?;
        line.push(b'\n');
        Ok::<_, serde_json::Error>(Bytes::from(line))
    });
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

/// Runs work that reads and writes files, and waits for locks of other processes.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ErrorReport> + Send + 'static,
) -> Result<T, ErrorReport> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(ErrorReport::new(Code::INTERNAL, error.to_string())))
}
