//! Reads the beginnings of text files: few bytes of each, and of all files together.

use std::sync::Arc;

use object_store::{ObjectMeta, ObjectStore};
use snowmelt_execute::read::{inflate_beginning, not_inflated};
use snowmelt_execute::scan::read_bytes;
use snowmelt_files::Compression;

use crate::tables::files::{display_name, store_of};
use crate::tables::locations::Located;
use crate::{Error, Result};

/// Bytes that are read of all files of a table together, and at least and at most of each.
const ALL_BYTES: u64 = 64 << 20;
const LEAST_BYTES: u64 = 64 << 10;
const MAX_BYTES: u64 = 1 << 20;

/// Bytes that are read of a file whose first record is not in its sample.
const LONG_BYTES: u64 = 8 << 20;

/// The beginning of a text.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) text: Vec<u8>,
    /// True if the sample is the whole text.
    pub(super) whole: bool,
    /// True if there is no longer sample.
    pub(super) last: bool,
}

/// Reads the samples of a table.
pub(super) struct Sampler<'l> {
    pub(super) located: &'l Located,
    bytes: u64,
}

/// The file that is sampled.
pub(super) struct Sampled<'l> {
    sampler: &'l Sampler<'l>,
    store: Arc<dyn ObjectStore>,
    meta: &'l ObjectMeta,
    compression: Compression,
}

impl<'l> Sampler<'l> {
    pub(super) fn new(located: &'l Located) -> Self {
        let each = ALL_BYTES / located.files.len().max(1) as u64;
        Self { located, bytes: each.clamp(LEAST_BYTES, MAX_BYTES) }
    }

    /// Opens a file, once.
    pub(super) async fn open(
        &'l self,
        meta: &'l ObjectMeta,
        compression: Compression,
    ) -> Result<Sampled<'l>> {
        let store = store_of(self.located, meta).await?;
        Ok(Sampled { sampler: self, store, meta, compression })
    }
}

impl Sampled<'_> {
    /// The sample of the file, or a longer one.
    pub(super) async fn read(&self, long: bool) -> Result<Sample> {
        let limit = if long { LONG_BYTES } else { self.sampler.bytes };
        let located = self.sampler.located;
        let size = self.meta.size;
        let name = || display_name(located, self.meta);
        let end = size.min(limit);
        let raw = match end {
            0 => bytes::Bytes::new(),
            _ => read_bytes(self.store.as_ref(), self.meta, 0..end)
                .await
                .map_err(|error| located.store_error(&name(), error))?,
        };
        // The decoder has a large window, so only one file is decompressed at a time: nothing is
        // awaited here.
        let inflated = inflate_beginning(self.compression, raw, end == size, limit as usize);
        let (text, whole) = inflated.map_err(|error| {
            Error::File(Box::new(not_inflated(&name(), self.compression, &error)))
        })?;
        Ok(Sample { text, whole, last: whole || long })
    }
}
