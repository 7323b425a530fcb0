//! Any raw bytes of one blob. The table is fetched with the first of them.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;

use super::Blocks;
use crate::Result;
use crate::block::{BlobSummary, Table};

/// Blocks of a read that are decompressed at once, so that memory is bounded whatever is asked for.
const AT_ONCE: usize = 16;

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
        self.record(table.touched(range.clone()), table.entries().len());
        self.read_quietly(range).await
    }

    /// The same for readers that are no part of a start.
    pub(super) async fn read_quietly(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let table = self.table().await?;
        let wanted = table.touched(range.clone());
        let size = table.block_size().bytes() as u64;
        let end = range.end.min(self.raw_size());
        let mut bytes = Vec::with_capacity(end.saturating_sub(range.start) as usize);
        let mut next = wanted.start;
        while next < wanted.end {
            let now = next..wanted.end.min(next + AT_ONCE);
            let blocks = self.blocks.get(&self.summary.digest, table, now.clone()).await?;
            for (index, block) in now.clone().zip(blocks) {
                let begin = index as u64 * size;
                let from = range.start.saturating_sub(begin) as usize;
                let to = (range.end - begin).min(block.len() as u64) as usize;
                bytes.extend_from_slice(&block[from..to]);
            }
            next = now.end;
        }
        Ok(bytes)
    }

    /// Has blocks in memory or on the disk before anybody asks for them.
    pub async fn prefetch(&self, wanted: Range<usize>) -> Result<()> {
        let table = self.table().await?;
        let end = wanted.end.min(table.entries().len());
        for start in (wanted.start..end).step_by(AT_ONCE) {
            let now = start..end.min(start + AT_ONCE);
            self.blocks.get(&self.summary.digest, table, now).await?;
        }
        Ok(())
    }

    /// The blocks that were read, in the order in which each was read first, each with a moment that
    /// can be compared with those of other readers of this process.
    pub fn touched(&self) -> Vec<(u64, usize)> {
        self.touched.lock().unwrap_or_else(PoisonError::into_inner).order.clone()
    }

    /// The offset table, fetched and compared with the root when it is asked for first.
    pub async fn table(&self) -> Result<&Arc<Table>> {
        let fetch = || async {
            let range = self.summary.table_offset..self.summary.size;
            let bytes = self.blocks.ask(&self.summary.digest, range).await?;
            let table = Table::decode(&bytes, &self.summary.root)?;
            if table.blob_size() != self.summary.size {
                let what = format!("the blob {}", self.summary.digest);
                return Err(crate::Error::damaged(what, "its table is that of another"));
            }
            Ok(Arc::new(table))
        };
        self.table.get_or_try_init(fetch).await
    }

    fn record(&self, blocks: Range<usize>, count: usize) {
        let mut touched = self.touched.lock().unwrap_or_else(PoisonError::into_inner);
        let Touched { order, seen } = &mut *touched;
        seen.resize(count, false);
        for block in blocks {
            if !std::mem::replace(&mut seen[block], true) {
                order.push((MOMENT.fetch_add(1, Ordering::Relaxed), block));
            }
        }
    }
}
