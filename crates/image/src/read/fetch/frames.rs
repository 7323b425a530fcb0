//! Decompression of stored blocks, limited to the frames that are read.

use std::ops::Range;

use bytes::Bytes;

use super::Blocks;
use crate::Result;
use crate::block::{Frame, Table, expand};

impl Blocks {
    /// Appends the raw bytes `wanted` of a block to `to`; `stored` are its stored bytes.
    pub(in crate::read) fn expand(
        &self,
        (table, index): (&Table, usize),
        stored: &Bytes,
        wanted: Range<usize>,
        to: &mut Vec<u8>,
    ) -> Result<()> {
        let partly = |frame: &Frame<'_>| self.cached_frame(table, index, frame);
        expand(stored, table.raw_of(index), wanted, to, partly)
    }

    /// Decompresses a frame of which a part is read, and caches it: the rest is likely to be read
    /// next.
    fn cached_frame(&self, table: &Table, index: usize, frame: &Frame<'_>) -> Result<Bytes> {
        let key = (table.entries()[index].digest, frame.raw.start);
        if let Some(bytes) = self.frames.get(&key) {
            return Ok(bytes);
        }
        let bytes = frame.decompress()?;
        self.frames.put(key, bytes.clone());
        Ok(bytes)
    }
}
