//! Any raw bytes of one blob. The table is fetched with the first of them.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;

use super::Blocks;
use crate::block::{BlobSummary, Table};
use crate::{Error, Result};

/// Blocks of a read that are held at once, so that memory is bounded whatever is asked for.
const AT_ONCE: usize = 16;

/// So many blocks below one that is wanted tell whether a reader goes through the blob.
const BELOW: usize = 8;
/// Blocks at most that one request brings beside those that are wanted.
const MOST_MORE: usize = 8;

/// Counts first uses over all blobs, so that their order is known.
static MOMENT: AtomicU64 = AtomicU64::new(0);

/// One blob, read on demand.
pub struct BlobReader {
    blocks: Arc<Blocks>,
    summary: BlobSummary,
    table: OnceCell<Arc<Table>>,
    touched: Mutex<Touched>,
}

#[derive(Default)]
struct Touched {
    /// Moments and blocks, in the order of their first use.
    order: Vec<(u64, usize)>,
    /// Whether each block was used.
    seen: Vec<bool>,
}

impl BlobReader {
    /// Fetches nothing yet.
    pub fn new(blocks: Arc<Blocks>, summary: BlobSummary) -> Result<Self> {
        summary.check()?;
        Ok(Self { blocks, summary, table: OnceCell::new(), touched: Mutex::default() })
    }

    /// Bytes when decompressed.
    pub fn raw_size(&self) -> u64 {
        self.summary.raw_size
    }

    /// What is known of the blob.
    pub fn summary(&self) -> &BlobSummary {
        &self.summary
    }

    /// The bytes of a range; what lies behind the end is left out.
    pub async fn read(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let table = self.table().await?;
        let more = self.record(table.touched(range.clone()), table.entries().len());
        self.read_with(range, more).await
    }

    /// The same for readers that are no part of a start.
    pub(super) async fn read_quietly(&self, range: Range<u64>) -> Result<Vec<u8>> {
        self.read_with(range, 0).await
    }

    async fn read_with(&self, range: Range<u64>, more: usize) -> Result<Vec<u8>> {
        let table = self.table().await?;
        let wanted = table.touched(range.clone());
        let size = table.block_size().bytes() as u64;
        let end = range.end.min(self.raw_size());
        let mut bytes = Vec::with_capacity(end.saturating_sub(range.start) as usize);
        let mut next = wanted.start;
        while next < wanted.end {
            let now = next..wanted.end.min(next + AT_ONCE);
            let blocks = self.blocks.get(&self.summary.digest, table, now.clone(), more).await?;
            for (index, stored) in now.clone().zip(blocks) {
                let (begin, raw) = (index as u64 * size, table.raw_of(index));
                let from = range.start.saturating_sub(begin) as usize;
                let to = (range.end - begin).min(raw as u64) as usize;
                self.blocks.expand((table, index), &stored, from..to, &mut bytes)?;
            }
            next = now.end;
        }
        if more == MOST_MORE {
            self.blocks.read_on(&self.summary.digest, table, wanted.end);
        }
        Ok(bytes)
    }

    /// Whether all of it is on this machine's disk, as far as is known without asking anybody.
    pub fn is_here(&self) -> bool {
        self.table.get().is_some_and(|table| self.blocks.has_all(table))
    }

    /// Has blocks on the disk before anybody asks for them, if there is a cache on the disk.
    pub async fn prefetch(&self, wanted: Range<usize>) -> Result<()> {
        let table = self.table().await?;
        let end = wanted.end.min(table.entries().len());
        self.blocks.ahead(&self.summary.digest, table, wanted.start.min(end)..end).await
    }

    /// The blocks that were read, in the order in which each was read first, each with a moment that
    /// can be compared with those of other readers of this process.
    pub fn touched(&self) -> Vec<(u64, usize)> {
        self.touched.lock().unwrap_or_else(PoisonError::into_inner).order.clone()
    }

    /// The offset table, fetched and compared with the root when it is asked for first.
    pub async fn table(&self) -> Result<&Arc<Table>> {
        let fetch = || async {
            let BlobSummary { digest, table_offset, size, root, .. } = &self.summary;
            let what = || format!("the offset table of {digest}");
            // Whatever is wrong with it, it is not what the root names.
            let decode = |bytes: &bytes::Bytes| match Table::decode(bytes, root) {
                Ok(table) if table.blob_size() == *size => Ok(Arc::new(table)),
                Ok(_) => Err(Error::damaged(what(), "it is that of another blob")),
                Err(Error::Refused { reason, .. } | Error::Damaged { reason, .. }) => {
                    Err(Error::damaged(what(), reason))
                }
                Err(error) => Err(error),
            };
            self.blocks.ask_sound(digest, *table_offset..*size, decode).await
        };
        self.table.get_or_try_init(fetch).await
    }

    /// Notes what is read, and says with how many blocks behind it a request should go on: twice
    /// as many as were read of those just below.
    fn record(&self, blocks: Range<usize>, count: usize) -> usize {
        let mut touched = self.touched.lock().unwrap_or_else(PoisonError::into_inner);
        let Touched { order, seen } = &mut *touched;
        seen.resize(count, false);
        let below = blocks.start.saturating_sub(BELOW)..blocks.start;
        let below = seen[below].iter().filter(|seen| **seen).count();
        for block in blocks {
            if !std::mem::replace(&mut seen[block], true) {
                order.push((MOMENT.fetch_add(1, Ordering::Relaxed), block));
            }
        }
        MOST_MORE.min(2 * below)
    }
}
