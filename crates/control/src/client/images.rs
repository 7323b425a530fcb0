//! The client of the routes of images: requests of long work, which report progress, and the upload
//! of layers that the server requests.

use std::io::{self, Read};
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use http::Method;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde::Serialize;
use snowmelt_api::{
    ConversionRequest, ConvertedImage, DifferenceRequest, ImageDetail, ImageDifference, ImageEvent,
    ImageRequest, ImageSummary, PlatformKey, PruneRequest, Pruned, PullRequest, PulledImage,
    PushRequest, PushedImage, VerifiedImage, WarmRequest, WarmedImage,
};
use snowmelt_image::Error;
use snowmelt_image::source::ConversionSource;
use snowmelt_rpc::client::{InProcess, Lines, NO_BODY};
use snowmelt_types::{Code, ErrorReport, Report};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::{ApiClient, segment};

/// Bytes of a layer that are sent at once.
const PIECE_BYTES: usize = 256 << 10;
/// Pieces that wait for a slow server.
const BUFFERED_PIECES: usize = 4;

/// A callback that shows the progress of running work.
pub type OnProgress<'a> = &'a mut (dyn FnMut(String) + Send);

/// An image that only this process may read.
#[derive(Clone)]
pub struct LocalImage {
    /// The name of the image as its user wrote it.
    pub name: String,
    /// The image that is read, such as a folder or an archive.
    pub origin: Arc<dyn ConversionSource + Send + Sync>,
}

impl ApiClient {
    /// Makes a client of a server in this process.
    pub(crate) fn in_process(server: InProcess) -> Self {
        Self { http: snowmelt_rpc::Client::in_process(server) }
    }

    /// Returns all local images.
    pub async fn images(&self) -> Result<Vec<ImageSummary>, ErrorReport> {
        self.json(Method::GET, "/v1/images", NO_BODY).await
    }

    /// Returns an image with all its details.
    pub async fn image(&self, request: &ImageRequest) -> Result<ImageDetail, ErrorReport> {
        self.json(Method::POST, "/v1/images/details", Some(request)).await
    }

    /// Returns the key with which others verify start profiles of the platform.
    pub async fn image_key(&self) -> Result<PlatformKey, ErrorReport> {
        self.json(Method::GET, "/v1/images/key", NO_BODY).await
    }

    /// Removes the name of an image.
    pub async fn remove_image(&self, name: &str) -> Result<(), ErrorReport> {
        let path = format!("/v1/images/{}", segment(name));
        self.unless_silent(self.http.no_content(Method::DELETE, &path, NO_BODY)).await
    }

    /// Removes what no local image refers to.
    pub async fn prune_images(&self, request: &PruneRequest) -> Result<Pruned, ErrorReport> {
        self.json(Method::POST, "/v1/images/prunings", Some(request)).await
    }

    /// Converts an image: one of a registry, or a local one, whose layers are sent.
    pub async fn convert(
        &self,
        request: &ConversionRequest,
        image: Option<LocalImage>,
        progress: OnProgress<'_>,
    ) -> Result<ConvertedImage, ErrorReport> {
        let (pieces, body) = mpsc::channel(BUFFERED_PIECES);
        let head = serde_json::to_vec(request).map_err(internal)?;
        pieces.send(part(&head)).await.map_err(internal)?;
        let body = ReceiverStream::new(body).map(|bytes| Ok(Frame::data(bytes)));
        let body = StreamBody::new(body).boxed_unsync();
        let kind = "application/octet-stream";
        let sent = self.http.upload("/v1/images/conversions", kind, body);
        let mut lines = Lines::new(self.unless_silent(sent).await?);
        let mut sending: Option<LayerTransfer> = None;
        loop {
            // A server that refuses a layer says so before all of it is sent.
            let event = tokio::select! {
                sent = ended(&mut sending) => {
                    sent?;
                    continue;
                }
                event = next(&mut lines, progress) => event?,
            };
            match event {
                ImageEvent::Converted(converted) => return Ok(converted),
                ImageEvent::Layer(index) => {
                    if sending.is_some() {
                        ended(&mut sending).await?;
                    }
                    let image = image.clone().ok_or_else(unexpected)?;
                    let pieces = pieces.clone();
                    let send = move || send(&image, index, &pieces);
                    sending = Some(tokio::task::spawn_blocking(send));
                }
                _ => return Err(unexpected()),
            }
        }
    }

    /// Fetches an image from a registry.
    pub async fn pull_image(
        &self,
        request: &PullRequest,
        progress: OnProgress<'_>,
    ) -> Result<PulledImage, ErrorReport> {
        match self.work("/v1/images/pulls", request, progress).await? {
            ImageEvent::Pulled(pulled) => Ok(pulled),
            _ => Err(unexpected()),
        }
    }

    /// Sends a local image to a registry.
    pub async fn push_image(
        &self,
        request: &PushRequest,
        progress: OnProgress<'_>,
    ) -> Result<PushedImage, ErrorReport> {
        match self.work("/v1/images/pushes", request, progress).await? {
            ImageEvent::Pushed(pushed) => Ok(pushed),
            _ => Err(unexpected()),
        }
    }

    /// Fetches blocks of an image into the cache.
    pub async fn warm_image(
        &self,
        request: &WarmRequest,
        progress: OnProgress<'_>,
    ) -> Result<WarmedImage, ErrorReport> {
        match self.work("/v1/images/prefetches", request, progress).await? {
            ImageEvent::Warmed(warmed) => Ok(warmed),
            _ => Err(unexpected()),
        }
    }

    /// Compares every block of an image with its digest.
    pub async fn verify_image(
        &self,
        request: &ImageRequest,
        progress: OnProgress<'_>,
    ) -> Result<VerifiedImage, ErrorReport> {
        match self.work("/v1/images/verifications", request, progress).await? {
            ImageEvent::Verified(verified) => Ok(verified),
            _ => Err(unexpected()),
        }
    }

    /// Compares two images.
    pub async fn compare_images(
        &self,
        request: &DifferenceRequest,
        progress: OnProgress<'_>,
    ) -> Result<ImageDifference, ErrorReport> {
        match self.work("/v1/images/comparisons", request, progress).await? {
            ImageEvent::Compared(found) => Ok(found),
            _ => Err(unexpected()),
        }
    }

    async fn work(
        &self,
        path: &str,
        request: &impl Serialize,
        progress: OnProgress<'_>,
    ) -> Result<ImageEvent, ErrorReport> {
        let asked = self.http.send(Method::POST, path, Some(request));
        let mut lines = Lines::new(self.unless_silent(asked).await?);
        next(&mut lines, progress).await
    }
}

/// Returns the next event other than progress, which is shown.
async fn next(
    lines: &mut Lines<ImageEvent>,
    progress: OnProgress<'_>,
) -> Result<ImageEvent, ErrorReport> {
    loop {
        match lines.next().await?.ok_or_else(cut_short)? {
            ImageEvent::Progress(text) => progress(text),
            ImageEvent::Failed(report) => return Err(report),
            event => return Ok(event),
        }
    }
}

/// The transfer of a layer by another thread.
type LayerTransfer = tokio::task::JoinHandle<Result<(), ErrorReport>>;

/// Waits until the layer that is being sent was sent; forever if none is.
async fn ended(sending: &mut Option<LayerTransfer>) -> Result<(), ErrorReport> {
    let Some(running) = sending else { return std::future::pending().await };
    let sent = running.await;
    *sending = None;
    sent.map_err(internal)?
}

/// Sends a layer in pieces; an empty one ends it.
fn send(image: &LocalImage, index: usize, to: &mpsc::Sender<Bytes>) -> Result<(), ErrorReport> {
    let mut layer = image.origin.layer(index).map_err(|error| error.report())?;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let length = read(&mut *layer, &mut piece)
            .map_err(|error| unreadable(&image.name, error).report())?;
        // If the server has gone, or has refused the image, its answer says so.
        if to.blocking_send(part(&piece[..length])).is_err() || length == 0 {
            return Ok(());
        }
    }
}

fn read(layer: &mut dyn Read, piece: &mut [u8]) -> io::Result<usize> {
    loop {
        match layer.read(piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

fn unreadable(name: &str, error: io::Error) -> Error {
    let location = name.to_owned();
    error.downcast().unwrap_or_else(|source| Error::Unreadable { location, source })
}

/// Returns bytes with their length before them.
fn part(bytes: &[u8]) -> Bytes {
    let mut part = BytesMut::with_capacity(4 + bytes.len());
    part.put_u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    part.extend_from_slice(bytes);
    part.freeze()
}

fn internal(error: impl std::fmt::Display) -> ErrorReport {
    ErrorReport::new(Code::INTERNAL, error.to_string())
}

fn cut_short() -> ErrorReport {
    let message = "the platform went away before the work on the image was complete";
    ErrorReport::new(Code::SERVER_UNREACHABLE, message).hint("run the command again")
}

fn unexpected() -> ErrorReport {
    ErrorReport::new(Code::PROTOCOL, "the platform sent an event that does not belong here")
}
