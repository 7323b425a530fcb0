//! Decompression of stored blocks, limited to the frames that are read.

use std::ops::Range;

use bytes::Bytes;

use super::BlockStore;
use crate::Result;
use crate::block::{BlockFrame, BlockTable, expand};

impl BlockStore {
    /// Appends the raw bytes `wanted` of a block to `to`; `stored` are its stored bytes.
    pub(in crate::read) fn expand(
        &self,
        table: &BlockTable,
        index: usize,
        stored: &Bytes,
        wanted: Range<usize>,
        to: &mut Vec<u8>,
    ) -> Result<()> {
        let partly = |frame: &BlockFrame<'_>| self.cached_frame(table, index, frame);
        expand(stored, table.raw_of(index), wanted, to, partly)
    }

    /// Decompresses a frame of which a part is read, and caches it: the rest is likely to be read
    /// next.
    fn cached_frame(
        &self,
        table: &BlockTable,
        index: usize,
        frame: &BlockFrame<'_>,
    ) -> Result<Bytes> {
        let key = (table.entries()[index].digest, frame.raw.start);
        if let Some(bytes) = self.frames.get(&key) {
            return Ok(bytes);
        }
        let bytes = frame.decompress()?;
        self.frames.put(key, bytes.clone());
        Ok(bytes)
    }
}
