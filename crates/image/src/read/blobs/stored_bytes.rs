//! The stored bytes of a blob for another host, block by block as each is whole and verified.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, StreamExt};

use super::BlobReader;
use crate::Result;
use crate::block::BlockTable;
use crate::read::Pieces;
use crate::read::sources::outside;

/// The rest of a range that is not sent yet.
struct Rest {
    reader: Arc<BlobReader>,
    table: Arc<BlockTable>,
    /// Blocks that are not sent yet.
    blocks: Range<usize>,
    range: Range<u64>,
}

impl BlobReader {
    /// Streams a range of the blob as it is stored, its table included. Blocks that are not on this
    /// machine are read from the source in one request, as far as they are adjacent. The access is
    /// not recorded as part of a start.
    pub async fn stored(self: &Arc<Self>, range: Range<u64>) -> Result<Pieces> {
        if range.is_empty() || range.end > self.summary().size {
            return Err(outside(&self.summary().digest, &range));
        }
        let reader = Arc::clone(self);
        let table = Arc::clone(self.table().await?);
        let blocks = table.stored_in(&range);
        let rest = Rest { reader, table, blocks, range };
        Ok(stream::try_unfold(rest, Rest::next).boxed())
    }
}

impl Rest {
    async fn next(mut self) -> Result<Option<(Bytes, Self)>> {
        while !self.range.is_empty() {
            let (begin, bytes) = if self.blocks.is_empty() {
                (self.table.offset(), Bytes::from(self.table.encode()))
            } else {
                let index = self.blocks.start;
                let more = self.blocks.len() - 1;
                self.blocks.start += 1;
                let bytes = self.reader.stored_block(&self.table, index, more).await?;
                (self.table.stored(index..index + 1).start, bytes)
            };
            let from = (self.range.start - begin) as usize;
            let to = bytes.len().min((self.range.end - begin) as usize);
            self.range.start = begin + to as u64;
            // A block of zeros has no stored bytes.
            if from < to {
                return Ok(Some((bytes.slice(from..to), self)));
            }
        }
        Ok(None)
    }
}
