//! The raw bytes of stored blocks, decompressed only where they are wanted.

use std::ops::Range;

use bytes::Bytes;

use super::Blocks;
use crate::Result;
use crate::block::{Frame, Table, expand};

/// Decompressed bytes in memory.
pub(super) const MOST_BYTES: usize = 2 << 20;

impl Blocks {
    /// Appends the raw bytes `wanted` of a block, whose stored bytes these are, to `to`.
    pub(super) fn expand(
        &self,
        (table, index): (&Table, usize),
        stored: &Bytes,
        wanted: Range<usize>,
        to: &mut Vec<u8>,
    ) -> Result<()> {
        let partly = |frame: &Frame<'_>| self.kept(table, index, frame);
        expand(stored, table.raw_of(index), wanted, to, partly)
    }

    /// A frame of which the reader takes a part: it will come for the rest.
    fn kept(&self, table: &Table, index: usize, frame: &Frame<'_>) -> Result<Bytes> {
        let key = (table.entries()[index].digest, frame.raw.start);
        if let Some(bytes) = self.frames.get(&key) {
            return Ok(bytes);
        }
        let bytes = frame.decompress()?;
        self.frames.put(key, bytes.clone());
        Ok(bytes)
    }
}
