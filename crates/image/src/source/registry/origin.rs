//! An image in a registry as the origin of a conversion.

use std::io::{self, Read};

use bytes::Bytes;
use reqwest::Response;
use tokio::runtime::Handle;

use super::failure::failed;
use super::transfer::Tries;
use super::{Reference, Registry};
use crate::manifest::Descriptor;
use crate::source::document::{Document, ImagePlatform};
use crate::source::{ConversionSource, Described};
use crate::{Error, Result};

/// An image in a registry. Its calls block, and must not be made on a thread of the runtime.
pub struct RegistryOrigin {
    registry: Registry,
    original: Descriptor,
    document: Document,
    runtime: Handle,
}

impl RegistryOrigin {
    /// Opens the image with that name for that platform.
    pub async fn open(
        registry: Registry,
        reference: &Reference,
        platform: &ImagePlatform,
    ) -> Result<Self> {
        let (mut original, bytes) = registry.manifest(reference.selector()).await?;
        let mut document = Document::parse(&bytes)?;
        if let Some(chosen) = document.for_platform(platform)? {
            let bytes;
            (original, bytes) = registry.manifest(chosen.digest.as_str()).await?;
            document = Document::parse(&bytes)?;
        }
        Ok(Self { registry, original, document, runtime: Handle::current() })
    }
}

impl ConversionSource for RegistryOrigin {
    fn describe(&self) -> Result<Described> {
        let config =
            self.runtime.block_on(self.registry.document(&self.document.config()?.digest))?;
        Ok(Described {
            config: Some(config.to_vec()),
            layers: self.document.layers.len(),
            original: Some(self.original.clone()),
        })
    }

    fn layer(&self, index: usize) -> Result<Box<dyn Read + '_>> {
        let layer = self.document.layers.get(index);
        let layer = layer.ok_or_else(|| Error::missing(format!("the layer {index}")))?;
        let open = self.registry.blob(&layer.digest, 0);
        let (answer, _) = self.runtime.block_on(open)?;
        let body = LayerBody {
            registry: &self.registry,
            layer,
            answer,
            at: 0,
            skip: 0,
            chunk: Bytes::new(),
            tries: Tries::default(),
        };
        Ok(Box::new(LayerStream { body, runtime: &self.runtime }))
    }
}

/// A layer as a stream of its bytes.
struct LayerStream<'a> {
    body: LayerBody<'a>,
    runtime: &'a Handle,
}

impl Read for LayerStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.body.chunk.is_empty() {
            self.runtime.block_on(self.body.advance()).map_err(io::Error::other)?;
        }
        let count = self.body.chunk.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.body.chunk.split_to(count));
        Ok(count)
    }
}

/// The responses that contain a layer. After an interrupted response, the rest is requested.
struct LayerBody<'a> {
    registry: &'a Registry,
    layer: &'a Descriptor,
    answer: Response,
    /// The bytes of the layer that were received so far.
    at: u64,
    /// The bytes to skip because they were received before.
    skip: u64,
    chunk: Bytes,
    /// The attempts since the last received byte.
    tries: Tries,
}

impl LayerBody<'_> {
    /// Reads the next bytes; returns none at the end.
    async fn advance(&mut self) -> Result<()> {
        while self.chunk.is_empty() && self.at < self.layer.size {
            let what = format!("the layer {}", self.layer.digest);
            match self.answer.chunk().await {
                Ok(Some(chunk)) => self.take(chunk),
                Ok(None) => {
                    let reason = format!("it has {} bytes, not {}", self.at, self.layer.size);
                    return Err(Error::damaged(what, reason));
                }
                Err(error) => self.resume(failed(&what, &error)).await?,
            }
        }
        Ok(())
    }

    fn take(&mut self, mut chunk: Bytes) {
        let known = self.skip.min(chunk.len() as u64);
        self.skip -= known;
        self.chunk = chunk.split_off(known as usize);
        // Bytes past the size in the manifest are dropped; the digest detects the difference.
        self.chunk.truncate(usize::try_from(self.layer.size - self.at).unwrap_or(usize::MAX));
        self.at += self.chunk.len() as u64;
        if !self.chunk.is_empty() {
            self.tries = Tries::default();
        }
    }

    async fn resume(&mut self, error: Error) -> Result<()> {
        if !self.registry.transfer.should_retry(&mut self.tries, &error).await {
            return Err(error);
        }
        tracing::debug!(layer = %self.layer.digest, at = self.at, %error, "resuming a layer");
        let (answer, from) = self.registry.blob(&self.layer.digest, self.at).await?;
        self.answer = answer;
        self.skip = self.at - from;
        Ok(())
    }
}
