//! An image whose layers the client sends in the body of its request, when they are requested.
//!
//! The client opens its files with its own rights. Nothing is spooled: a layer is converted while
//! it arrives, and a layer that the platform knows is not sent.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use snowmelt_api::{ClientImage, ImageEvent};
use snowmelt_image::manifest::Descriptor;
use snowmelt_image::source::{ConversionSource, Described};
use snowmelt_image::{Error, Result};
use snowmelt_rpc::body;
use snowmelt_types::{Code, ErrorReport};
use tokio::sync::mpsc;

use super::job::ImageJob;

/// The most bytes of the first part of a body: a configuration has at most 4 MiB.
const MAX_HEAD_BYTES: usize = 16 << 20;
/// The most bytes of a piece of a layer.
const MAX_PIECE_BYTES: usize = 4 << 20;
/// The most pieces that wait to be converted.
const BUFFERED_PIECES: usize = 4;
/// How long a client may send nothing of a layer that was requested. It may be suspended, and the
/// conversion keeps others from removing blobs.
const SILENT_AT_MOST: Duration = Duration::from_secs(300);
/// How long a body is read on after the work has ended, so that the client can read why.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// The body of a request, in parts with their length before each.
pub(crate) struct Incoming {
    body: Body,
    buffer: BytesMut,
}

impl Incoming {
    pub fn new(body: Body) -> Self {
        Self { body, buffer: BytesMut::new() }
    }

    /// Reads the first part of the body, as JSON.
    pub async fn head<T: DeserializeOwned>(&mut self) -> std::result::Result<T, ErrorReport> {
        let head = self.part(MAX_HEAD_BYTES).await;
        let head = head.map_err(|error| ErrorReport::new(Code::OPTION, error.to_string()))?;
        body::parse(&head)
    }

    /// Reads the next part of the body.
    async fn part(&mut self, longest: usize) -> io::Result<Bytes> {
        self.fill(4).await?;
        let length = self.buffer.get_u32() as usize;
        if length > longest {
            return Err(io::Error::other("a part of the request is too long"));
        }
        self.fill(length).await?;
        Ok(self.buffer.split_to(length).freeze())
    }

    async fn fill(&mut self, length: usize) -> io::Result<()> {
        while self.buffer.len() < length {
            let frame = self.body.frame().await.ok_or(io::ErrorKind::UnexpectedEof)?;
            if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
        Ok(())
    }

    /// Passes on the pieces of layers. Keeps the response open until the client has ended its
    /// request: a client that still sends would not get the rest of a response that is closed.
    async fn pass_on(mut self, pieces: mpsc::Sender<Bytes>, _open: mpsc::Sender<ImageEvent>) {
        while let Ok(piece) = self.part(MAX_PIECE_BYTES).await {
            if pieces.send(piece).await.is_err() {
                let rest = async { while let Some(Ok(_)) = self.body.frame().await {} };
                let _ = tokio::time::timeout(DRAIN_TIMEOUT, rest).await;
                return;
            }
        }
    }
}

/// The pieces of layers, as they arrive. An empty one ends a layer.
pub(super) type Pieces = mpsc::Receiver<Bytes>;

/// Receives layers; `open` is the channel of the job's events.
pub(super) fn receive(incoming: Incoming, open: mpsc::Sender<ImageEvent>) -> Pieces {
    let (sender, pieces) = mpsc::channel(BUFFERED_PIECES);
    tokio::spawn(incoming.pass_on(sender, open));
    pieces
}

/// An image whose layers the client sends.
pub(super) struct ImageUpload {
    image: Described,
    job: Arc<ImageJob>,
    pieces: Mutex<Pieces>,
    /// Whether the last layer that was requested has arrived in full.
    has_ended: AtomicBool,
}

impl ImageUpload {
    pub fn new(image: ClientImage, pieces: Pieces, job: &Arc<ImageJob>) -> Result<Self> {
        let original = image.original.map(|original| {
            let digest = original.digest.parse()?;
            Ok::<_, Error>(Descriptor::new(&original.media_type, digest, original.size))
        });
        let config = image.config.map(String::into_bytes);
        // Without a configuration, no digest says which layers there are.
        let layers = if config.is_none() { 1 } else { image.layers };
        let image = Described { config, layers, original: original.transpose()? };
        let pieces = Mutex::new(pieces);
        let has_ended = AtomicBool::new(true);
        Ok(Self { image, job: Arc::clone(job), pieces, has_ended })
    }

    fn next_piece(&self) -> io::Result<Bytes> {
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        let next = async { tokio::time::timeout(SILENT_AT_MOST, pieces.recv()).await };
        match self.job.runtime.block_on(next) {
            Ok(Some(piece)) => {
                self.has_ended.store(piece.is_empty(), Ordering::Relaxed);
                Ok(piece)
            }
            Ok(None) => Err(io::Error::other("the client did not send all of it")),
            Err(_) => Err(io::Error::other("the client sent nothing for five minutes")),
        }
    }
}

impl ConversionSource for ImageUpload {
    fn describe(&self) -> Result<Described> {
        Ok(self.image.clone())
    }

    fn layer(&self, index: usize) -> Result<Box<dyn Read + '_>> {
        // A reader need not read what follows the end of an archive.
        while !self.has_ended.load(Ordering::Relaxed) {
            self.next_piece().map_err(|error| {
                let what = format!("the layer {index}");
                Error::Refused { what, reason: error.to_string() }
            })?;
        }
        self.has_ended.store(false, Ordering::Relaxed);
        // If the client has gone, reading the layer fails.
        let _ = self.job.events.blocking_send(ImageEvent::Layer(index));
        Ok(Box::new(UploadReader { image: self, piece: Bytes::new() }))
    }
}

struct UploadReader<'a> {
    image: &'a ImageUpload,
    piece: Bytes,
}

impl Read for UploadReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.piece.is_empty() && !self.image.has_ended.load(Ordering::Relaxed) {
            self.piece = self.image.next_piece()?;
        }
        let count = self.piece.len().min(buffer.len());
        self.piece.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}
