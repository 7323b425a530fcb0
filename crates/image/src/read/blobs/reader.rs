//! Reads any raw bytes of one blob. The table is fetched at the first read.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::OnceCell;

use crate::block::{BlobSummary, BlockTable};
use crate::read::BlockStore;
use crate::read::fetch::{MAX_MORE, PrefetchTurns};
use crate::{Error, Result};

/// The most blocks of a read that are in memory at the same time, which limits the memory of large
/// reads.
const BLOCKS_PER_STEP: usize = 16;

/// The number of preceding blocks that are inspected to detect a sequential reader.
const BELOW: usize = 8;

/// The clock that numbers the first uses over all blobs, so that their order is known.
static CLOCK: AtomicU64 = AtomicU64::new(0);

/// A reader of one blob, which fetches blocks on demand.
pub struct BlobReader {
    blocks: Arc<BlockStore>,
    summary: BlobSummary,
    table: OnceCell<Arc<BlockTable>>,
    touched: Mutex<Touched>,
    /// Requests for blocks ahead of a sequential reader.
    ahead: PrefetchTurns,
}

#[derive(Default)]
struct Touched {
    /// The blocks in the order of their first use, each with its time by `CLOCK`.
    order: Vec<(u64, usize)>,
    /// For each block, true if it was used.
    seen: Vec<bool>,
    /// For each block, true if the profile of a start has it.
    expected: Vec<bool>,
    /// True while the blocks of the profile are being prefetched.
    is_prefetching: bool,
}

impl BlobReader {
    /// Makes a reader, and fetches nothing yet.
    pub fn new(blocks: Arc<BlockStore>, summary: BlobSummary) -> Result<Self> {
        summary.check()?;
        let table = OnceCell::new();
        let touched = Mutex::default();
        let ahead = PrefetchTurns::default();
        Ok(Self { blocks, summary, table, touched, ahead })
    }

    /// Returns the number of decompressed bytes of the blob.
    pub fn raw_size(&self) -> u64 {
        self.summary.raw_size
    }

    /// Returns the sizes and digests of the blob.
    pub fn summary(&self) -> &BlobSummary {
        &self.summary
    }

    /// Reads the bytes of a range; the part of the range past the end is ignored.
    pub async fn read(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let table = self.table().await?;
        let more = self.record(table.touched(range.clone()), table);
        self.read_with(range, more).await
    }

    /// Reads without recording the access, for reads that are not part of a start.
    pub(super) async fn read_unrecorded(&self, range: Range<u64>) -> Result<Vec<u8>> {
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
            let now = next..wanted.end.min(next + BLOCKS_PER_STEP);
            let blocks = self.blocks.get(&self.summary.digest, table, now.clone(), more).await?;
            for (index, stored) in now.clone().zip(blocks) {
                let begin = index as u64 * size;
                let raw = table.raw_of(index);
                let from = range.start.saturating_sub(begin) as usize;
                let to = (range.end - begin).min(raw as u64) as usize;
                self.blocks.expand(table, index, &stored, from..to, &mut bytes)?;
            }
            next = now.end;
        }
        if more > 0 {
            self.blocks.read_ahead(&self.summary.digest, table, wanted.end, more, &self.ahead);
        }
        Ok(bytes)
    }

    /// Returns one block as it is stored. If the block has to be fetched, the request is also for
    /// `more` blocks behind it.
    pub(super) async fn stored_block(
        &self,
        table: &Arc<BlockTable>,
        index: usize,
        more: usize,
    ) -> Result<Bytes> {
        let wanted = index..index + 1;
        let blocks = self.blocks.get(&self.summary.digest, table, wanted, more).await?;
        Ok(blocks.into_iter().next().unwrap_or_default())
    }

    /// Returns whether the whole blob is in the disk cache, without a request: `false` if the table
    /// is unknown.
    pub fn is_on_disk(&self) -> bool {
        self.table.get().is_some_and(|table| self.blocks.has(table, 0..table.entries().len()))
    }

    /// Returns how many bytes of the blob as it is stored are on this machine, without a request:
    /// blocks in the disk cache, and the offset table. `None` if the table is unknown.
    pub fn stored_bytes(&self) -> Option<u64> {
        let BlobSummary { table_offset, size, .. } = self.summary;
        let table = self.table.get()?;
        Some(self.blocks.cached_bytes(table) + size - table_offset)
    }

    /// Returns whether a range of the blob as it is stored is in the disk cache, without a request.
    pub fn has_stored(&self, range: &Range<u64>) -> bool {
        let table = self.table.get();
        table.is_some_and(|table| self.blocks.has(table, table.stored_in(range)))
    }

    /// Fetches blocks to the disk cache before they are read; does nothing without a disk cache.
    pub async fn prefetch(&self, wanted: Range<usize>) -> Result<()> {
        let table = self.table().await?;
        let end = wanted.end.min(table.entries().len());
        self.blocks.prefetch(&self.summary.digest, table, wanted.start.min(end)..end).await
    }

    /// Returns the number of bytes that were fetched from the source, for this blob and all blobs
    /// that share its block store.
    pub(crate) fn fetched_bytes(&self) -> u64 {
        self.blocks.counts().fetched_bytes
    }

    /// Returns the blocks that were read, in the order of their first read, each with a time that
    /// can be compared with the times of other readers of this process.
    pub fn touched(&self) -> Vec<(u64, usize)> {
        self.touches().order.clone()
    }

    /// Returns the offset table; the first call fetches it and verifies it against the root.
    pub async fn table(&self) -> Result<&Arc<BlockTable>> {
        let fetch = || async {
            let BlobSummary { digest, table_offset, size, root, .. } = &self.summary;
            let what = || format!("the offset table of {digest}");
            // Any defect means that these are not the bytes that the root covers.
            let decode = |bytes: &Bytes| match BlockTable::decode(bytes, root) {
                Ok(table) if table.blob_size() == *size => Ok(Arc::new(table)),
                Ok(_) => Err(Error::damaged(what(), "it is that of another blob")),
                Err(Error::Refused { reason, .. } | Error::Damaged { reason, .. }) => {
                    Err(Error::damaged(what(), reason))
                }
                Err(error) => Err(error),
            };
            let request = self.blocks.request_verified(digest, *table_offset..*size, decode);
            self.blocks.before_reads(digest, request).await
        };
        self.table.get_or_try_init(fetch).await
    }

    /// Notes blocks that a start reads and that are being prefetched: blocks behind them are not
    /// read ahead.
    pub(crate) fn expect(&self, blocks: impl IntoIterator<Item = usize>) {
        let Touched { expected, is_prefetching, .. } = &mut *self.touches();
        *is_prefetching = true;
        for block in blocks {
            expected.resize(expected.len().max(block + 1), false);
            expected[block] = true;
        }
    }

    /// Notes that the blocks of the profile were prefetched, or could not be. If they could not be,
    /// blocks behind a read are read ahead again, as without a profile.
    pub(crate) fn prefetched(&self, are_here: bool) {
        let mut touches = self.touches();
        touches.is_prefetching = false;
        if !are_here {
            touches.expected.clear();
        }
    }

    fn touches(&self) -> MutexGuard<'_, Touched> {
        self.touched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the blocks that are read. Returns by how many blocks the request should be extended:
    /// twice the number of preceding blocks that were read. The request is not extended if all
    /// blocks are of the profile and still being prefetched or in the disk cache, from which they
    /// may have been evicted.
    fn record(&self, blocks: Range<usize>, table: &BlockTable) -> usize {
        let count = table.entries().len();
        let Touched { order, seen, expected, is_prefetching } = &mut *self.touches();
        let is_expected = blocks.clone().all(|block| expected.get(block) == Some(&true));
        let is_expected =
            is_expected && (*is_prefetching || self.blocks.has(table, blocks.clone()));
        seen.resize(count, false);
        let below = blocks.start.saturating_sub(BELOW)..blocks.start;
        let below = seen[below].iter().filter(|seen| **seen).count();
        for block in blocks {
            if !std::mem::replace(&mut seen[block], true) {
                order.push((CLOCK.fetch_add(1, Ordering::Relaxed), block));
            }
        }
        if is_expected { 0 } else { MAX_MORE.min(2 * below) }
    }
}
