//! Conversions, pulls and pushes.

use std::sync::Arc;

use snowmelt_api::{
    ConversionRequest, ConvertedImage, ImageEvent, ImageSource, PullRequest, PulledImage,
    PushRequest, PushedImage,
};
use snowmelt_image::block::BlockSize;
use snowmelt_image::layer::LayerLimits;
use snowmelt_image::source::{ConversionSource, ImageLocation};
use snowmelt_image::{Converted, Options, convert, exchange};
use snowmelt_types::ErrorReport;
use tokio::sync::mpsc::Receiver;

use super::job::{ImageJob, JobOrigin, channel};
use super::upload::{ImageUpload, Incoming, Pieces, receive};
use super::{Images, access, reference, reported, sizes};

impl Images {
    /// Converts an image. The client may have to send it.
    pub fn convert(
        &self,
        request: ConversionRequest,
        incoming: Incoming,
        user: Option<u32>,
    ) -> Receiver<ImageEvent> {
        let (events, received) = channel();
        let pieces = receive(incoming, events.clone());
        let images = self.clone();
        self.begin_with(events, user, move |job| images.convert_now(request, pieces, job, user));
        received
    }

    fn convert_now(
        &self,
        request: ConversionRequest,
        pieces: Pieces,
        job: &Arc<ImageJob>,
        user: Option<u32>,
    ) -> Result<ImageEvent, ErrorReport> {
        job.wait(job.check_share())?;
        let name = reference(&request.name)?;
        let block_size = request.block_size.map(BlockSize::try_from).transpose();
        let block_size = block_size.map_err(reported)?.unwrap_or_default();
        let layout = self.layout()?;
        let origin: Box<dyn ConversionSource + Send + Sync> = match request.source {
            ImageSource::Client(image) => {
                Box::new(ImageUpload::new(image, pieces, job).map_err(reported)?)
            }
            ImageSource::Registry(from) => {
                let access = access(request.access)?;
                let from = reference(&from)?;
                job.wait(ImageLocation::Registry(from).open(&access))?
            }
        };
        let options = Options { block_size, limits: limits(user) };
        let converted =
            convert(&JobOrigin::new(origin, job), &layout, options).map_err(reported)?;
        layout.tag(&name.to_string(), &converted.manifest).map_err(reported)?;
        Ok(ImageEvent::Converted(summary(&converted)))
    }

    /// Fetches an image from a registry.
    pub fn pull(&self, request: PullRequest, user: Option<u32>) -> Receiver<ImageEvent> {
        let images = self.clone();
        let pull = move |job: &Arc<ImageJob>| {
            job.wait(job.check_share())?;
            let from = reference(&request.from)?;
            let name = reference(&request.name)?;
            let layout = images.layout()?;
            let access = access(request.access)?;
            let progress = |blob, blobs, bytes| job.transferred("fetching", blob, blobs, bytes);
            let pulled = job.wait(exchange::pull(&from, &layout, &access, &progress))?;
            layout.tag(&name.to_string(), &pulled.manifest).map_err(reported)?;
            Ok(ImageEvent::Pulled(PulledImage { manifest: pulled.manifest.digest.to_string() }))
        };
        self.begin(user, pull)
    }

    /// Sends a local image, with its start profile, to a registry.
    pub fn push(&self, request: PushRequest, user: Option<u32>) -> Receiver<ImageEvent> {
        let images = self.clone();
        let push = move |job: &Arc<ImageJob>| {
            let name = reference(&request.name)?;
            let to = reference(&request.to)?;
            let layout = images.layout()?;
            let access = access(request.access)?;
            let manifest = layout.find(Some(&name.to_string())).map_err(reported)?;
            // It stays complete, whatever becomes of its name.
            let _pinned = layout.pin(&manifest.digest).map_err(reported)?;
            let image = exchange::read(&layout, &manifest).map_err(reported)?;
            let progress = |blob, blobs, bytes| job.transferred("sending", blob, blobs, bytes);
            let sent = job.wait(exchange::push(&layout, &image, &to, &access, &progress))?;
            let has_start = job.wait(images.stores.publish_start(&to, &manifest, &access))?;
            Ok(ImageEvent::Pushed(PushedImage {
                manifest: manifest.digest.to_string(),
                blobs: sent.blobs.len() as u64,
                bytes: sent.bytes,
                has_start,
            }))
        };
        self.begin(user, push)
    }
}

/// Returns the limits on layers of a conversion. The server keeps the entries of layers in memory,
/// so users who are not operators may have fewer.
fn limits(user: Option<u32>) -> LayerLimits {
    match user {
        None => LayerLimits::default(),
        Some(_) => {
            LayerLimits { entries: 500_000, metadata_bytes: 128 << 20, ..LayerLimits::default() }
        }
    }
}

fn summary(converted: &Converted) -> ConvertedImage {
    let (bytes, raw_bytes) = sizes(&converted.image);
    ConvertedImage {
        manifest: converted.manifest.digest.to_string(),
        layers: converted.image.layers.len(),
        reused: converted.reused,
        devices: converted.devices,
        bytes,
        raw_bytes,
    }
}
