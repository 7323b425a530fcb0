//! Stored blocks from memory, disk or source, each fetched once and verified.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::claims::{BlockClaim, InFlight};
use super::failed_reads::FailedReads;
use super::memory::Recent;
use crate::block::{BlockDigest, BlockEntry, BlockTable, OciDigest, verify};
use crate::read::sources::deadline;
use crate::read::{BlockCache, BlockSource};
use crate::{Error, Result};

/// The most stored bytes of adjacent blocks that one request fetches.
pub(super) const REQUEST_BYTES: u64 = 4 << 20;
/// The number of attempts for a block whose bytes are damaged.
const DAMAGED_ATTEMPTS: u32 = 3;
/// The most stored bytes in memory: together with the requests in flight, less than 30 MiB per
/// process.
const RECENT_BYTES: usize = 3 << 20;
/// The most decompressed bytes in memory.
const FRAMES_BYTES: usize = 2 << 20;

/// Counters since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FetchCounts {
    /// The number of requests to the source.
    pub requests: u64,
    /// Stored bytes received from the source.
    pub fetched_bytes: u64,
    /// The number of blocks read from the disk.
    pub cached: u64,
    /// The number of blocks that were damaged, from the source or the disk.
    pub damaged: u64,
    /// The number of blocks that could not be stored in the disk cache.
    pub store_failures: u64,
}

/// The block store of a process: all blobs share its source, memory and disk cache.
pub struct BlockStore {
    pub(super) source: Arc<dyn BlockSource>,
    pub(super) cache: Option<Arc<BlockCache>>,
    recent: Recent<BlockDigest>,
    /// Decompressed frames that were read in part, by block and first byte.
    pub(super) frames: Recent<(BlockDigest, usize)>,
    pub(super) in_flight: InFlight,
    pub(super) requests: AtomicU64,
    pub(super) fetched_bytes: AtomicU64,
    cached: AtomicU64,
    damaged: AtomicU64,
    /// Whether the last block could not be stored.
    last_store_failed: AtomicBool,
    store_failures: AtomicU64,
    read_within: Duration,
    failed_reads: FailedReads,
}

impl BlockStore {
    /// Makes the store. Without a disk cache, every miss in memory is a request to the source.
    pub fn new(source: Arc<dyn BlockSource>, cache: Option<Arc<BlockCache>>) -> Self {
        Self {
            source,
            cache,
            recent: Recent::new(RECENT_BYTES),
            frames: Recent::new(FRAMES_BYTES),
            in_flight: InFlight::default(),
            requests: AtomicU64::new(0),
            fetched_bytes: AtomicU64::new(0),
            cached: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            last_store_failed: AtomicBool::new(false),
            store_failures: AtomicU64::new(0),
            read_within: deadline::READ_TIMEOUT,
            failed_reads: FailedReads::default(),
        }
    }

    /// Sets the time after which a read fails that has received nothing.
    #[must_use]
    pub fn reading_within(self, read_within: Duration) -> Self {
        Self { read_within, ..self }
    }

    /// Returns the time at which a read of a blob fails that begins now, or has just received
    /// something.
    fn end_of_read(&self, blob: &OciDigest) -> Instant {
        let has_failed = self.failed_reads.has(blob);
        Instant::now() + if has_failed { Duration::ZERO } else { self.read_within }
    }

    /// Does a part of a read of a blob, with this time as its deadline.
    async fn read_until<T>(
        &self,
        blob: &OciDigest,
        until: Instant,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        deadline::until(until, work).await.inspect_err(|error| self.has_failed(blob, error))
    }

    /// Remembers that a blob could not be read within the time that a read has.
    pub(super) fn has_failed(&self, blob: &OciDigest, error: &Error) {
        // Another host that waits gives less time.
        if error.is_transient() && deadline::current().is_none() {
            self.failed_reads.add(blob);
        }
    }

    /// Does work that must be done before a blob can be read, with the deadline of a read.
    pub(in crate::read) async fn before_reads<T>(
        &self,
        blob: &OciDigest,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.read_until(blob, self.end_of_read(blob), work).await
    }

    /// Returns the counters so far.
    pub fn counts(&self) -> FetchCounts {
        FetchCounts {
            requests: self.requests.load(Ordering::Relaxed),
            fetched_bytes: self.fetched_bytes.load(Ordering::Relaxed),
            cached: self.cached.load(Ordering::Relaxed),
            damaged: self.damaged.load(Ordering::Relaxed)
                + self.cache.as_ref().map_or(0, |cache| cache.damaged()),
            store_failures: self.store_failures.load(Ordering::Relaxed),
        }
    }

    /// Returns the blocks `wanted` of a blob, in order. Adjacent misses are one request, which is
    /// extended by up to `more` blocks after the last one: a sequential reader needs them next, and
    /// a request costs more than its additional bytes.
    pub(in crate::read) async fn get(
        self: &Arc<Self>,
        blob: &OciDigest,
        table: &Arc<BlockTable>,
        wanted: Range<usize>,
        more: usize,
    ) -> Result<Vec<Bytes>> {
        let mut found: Vec<Option<Bytes>> = vec![None; wanted.len()];
        let mut until = self.end_of_read(blob);
        loop {
            self.look(table, wanted.start, &mut found);
            let Some(missing) = first_gap(&found, table, wanted.start) else {
                return Ok(found.into_iter().flatten().collect());
            };
            // One request goes to one host, and hosts have one stripe each.
            let missing = missing.start..self.end_of_stripe(blob, table, missing);
            let digests: Vec<BlockDigest> =
                table.entries()[missing.clone()].iter().map(|entry| entry.digest).collect();
            // All or none: two readers that each held a part and waited for the other's would wait
            // for ever.
            let Some(_claim) = self.in_flight.claim(&digests) else {
                let released = async {
                    let at = deadline::current().map_or(until, |known| known.min(until));
                    let late = |_| Error::unreachable("a block", "another read waits for it");
                    // As long as an attempt, so that this read does not end before that one.
                    timeout_at(at + deadline::LEAST, self.in_flight.wait(&digests))
                        .await
                        .map_err(late)
                };
                self.read_until(blob, until, released).await?;
                // It has received something, or has failed.
                until = self.end_of_read(blob);
                continue;
            };
            // Another reader may have fetched one since it was looked for, and released it.
            let at = missing.start - wanted.start;
            if self.look(table, missing.start, &mut found[at..at + missing.len()]) {
                continue;
            }
            let is_last = missing.end == wanted.end;
            let more = if is_last { more } else { 0 };
            // Claimed after the wanted blocks, and only as far as they are free: a reader waits for
            // no block that it does not need.
            let extension = self.extend(blob, table, missing.clone(), more);
            let fetched = self.fetch(blob, table, missing.clone(), extension);
            let blocks = self.read_until(blob, until, fetched).await?;
            until = self.end_of_read(blob);
            for (slot, block) in found[at..].iter_mut().zip(blocks) {
                *slot = Some(block);
            }
        }
    }

    /// Returns whether blocks are in the disk cache.
    pub(in crate::read) fn has(&self, table: &BlockTable, blocks: Range<usize>) -> bool {
        let Some(cache) = &self.cache else { return false };
        table.entries()[blocks].iter().all(|entry| entry.stored == 0 || cache.has(entry))
    }

    /// Returns how many bytes of a blob's blocks are in the disk cache.
    pub(in crate::read) fn cached_bytes(&self, table: &BlockTable) -> u64 {
        self.cache.as_ref().map_or(0, |cache| cache.bytes_of(table.entries()))
    }

    /// Returns the end of the first run of `blocks` that are in one stripe.
    pub(super) fn end_of_stripe(
        &self,
        blob: &OciDigest,
        table: &BlockTable,
        blocks: Range<usize>,
    ) -> usize {
        let stripe = |index| self.source.stripe(blob, table.stored(index..index + 1).start);
        let first = stripe(blocks.start);
        (blocks.start + 1..blocks.end).find(|&index| stripe(index) != first).unwrap_or(blocks.end)
    }

    /// Looks for the blocks from `first` on that are not found yet, without a request; true if at
    /// least one is found.
    fn look(&self, table: &BlockTable, first: usize, found: &mut [Option<Bytes>]) -> bool {
        let mut has_one = false;
        for (index, slot) in (first..).zip(found).filter(|(_, slot)| slot.is_none()) {
            *slot = self.local(table, index);
            has_one |= slot.is_some();
        }
        has_one
    }

    /// Returns a block that can be had without a request.
    fn local(&self, table: &BlockTable, index: usize) -> Option<Bytes> {
        let entry = &table.entries()[index];
        if entry.stored == 0 {
            return Some(Bytes::new());
        }
        if let Some(block) = self.recent.get(&entry.digest) {
            return Some(block);
        }
        let stored = Bytes::from(self.cache.as_ref()?.get(entry)?);
        self.cached.fetch_add(1, Ordering::Relaxed);
        // The kernel reads a block in pieces, and the disk is not asked for each of them.
        self.recent.put(entry.digest, stored.clone());
        Some(stored)
    }

    /// Fetches adjacent blocks from the source; the blocks of the extension are only cached.
    async fn fetch(
        self: &Arc<Self>,
        blob: &OciDigest,
        table: &Arc<BlockTable>,
        indexes: Range<usize>,
        extension: Option<(usize, BlockClaim)>,
    ) -> Result<Vec<Bytes>> {
        let streamed = match extension {
            Some((end, claim)) => {
                self.fetch_streamed(blob, table, indexes.clone(), end, claim).await?
            }
            None => None,
        };
        let stored = match streamed {
            Some(stored) => stored,
            // The response was incomplete: request the wanted blocks again, without the extension.
            None => self.fetch_stored(blob, table, indexes.clone()).await?,
        };
        for (index, stored) in indexes.zip(&stored) {
            // A copy, because a slice would keep the whole response in memory.
            let digest = table.entries()[index].digest;
            self.recent.put(digest, Bytes::copy_from_slice(stored));
        }
        Ok(stored)
    }

    /// Fetches the stored bytes of adjacent blocks, verified and cached; damaged ones are fetched
    /// again.
    pub(super) async fn fetch_stored(
        &self,
        blob: &OciDigest,
        table: &BlockTable,
        indexes: Range<usize>,
    ) -> Result<Vec<Bytes>> {
        let range = table.stored(indexes.clone());
        let cut = |bytes: &Bytes| cut(bytes, table, indexes.clone());
        let stored = self.request_verified(blob, range, cut).await?;
        for (index, stored) in indexes.zip(&stored) {
            self.keep(&table.entries()[index], stored);
        }
        Ok(stored)
    }

    /// Fetches bytes of a blob and returns the result of `check` for them; bytes that it reports as
    /// damaged are fetched again.
    pub(in crate::read) async fn request_verified<T>(
        &self,
        blob: &OciDigest,
        range: Range<u64>,
        check: impl Fn(&Bytes) -> Result<T>,
    ) -> Result<T> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let answer = self.request(blob, range.clone()).await;
            match answer.and_then(|bytes| check(&bytes)) {
                Err(error @ Error::Damaged { .. }) if attempt < DAMAGED_ATTEMPTS => {
                    tracing::warn!(%blob, %error, "fetching damaged bytes again");
                    // Before the next attempt, so that it goes to another host.
                    self.source.found_damaged(blob, &range);
                    self.damaged.fetch_add(1, Ordering::Relaxed);
                }
                outcome => return outcome,
            }
        }
    }

    /// Fetches bytes of a blob from the source, unverified but of the requested length.
    pub(super) async fn request(&self, blob: &OciDigest, range: Range<u64>) -> Result<Bytes> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        let bytes = self.source.fetch(blob, range.clone()).await?;
        self.fetched_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        // Checked before anything is cut: block positions are taken from the range.
        if bytes.len() as u64 == range.end - range.start {
            return Ok(bytes);
        }
        let reason = format!("{} bytes were received for {range:?}", bytes.len());
        Err(Error::damaged(format!("the blob {blob}"), reason))
    }

    /// Stores a block in the disk cache. A failure is only logged: the caller has the block in
    /// memory.
    pub(super) fn keep(&self, entry: &BlockEntry, stored: &[u8]) {
        let Some(cache) = self.cache.as_ref().filter(|_| !stored.is_empty()) else { return };
        let Err(error) = cache.put(entry, stored) else {
            return self.last_store_failed.store(false, Ordering::Relaxed);
        };
        self.store_failures.fetch_add(1, Ordering::Relaxed);
        // Logged once: on a full disk every block fails.
        if !self.last_store_failed.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, "blocks are not cached");
        }
    }
}

/// Splits the bytes of adjacent blocks; verifies each block.
fn cut(bytes: &Bytes, table: &BlockTable, indexes: Range<usize>) -> Result<Vec<Bytes>> {
    let begin = table.stored(indexes.clone()).start;
    let one = |index: usize| {
        let at = table.stored(index..index + 1);
        let stored = bytes.slice((at.start - begin) as usize..(at.end - begin) as usize);
        verify(&stored, &table.entries()[index]).map(|()| stored)
    };
    indexes.map(one).collect()
}

/// Returns the first run of missing blocks, limited to the size of one request.
fn first_gap(found: &[Option<Bytes>], table: &BlockTable, first: usize) -> Option<Range<usize>> {
    let start = found.iter().position(Option::is_none)?;
    let run = found[start..].iter().take_while(|block| block.is_none()).count();
    let mut end = first + start + 1;
    let start = first + start;
    while end < first + found.len()
        && end - start < run
        && table.stored(start..end + 1).end - table.stored(start..end).start <= REQUEST_BYTES
    {
        end += 1;
    }
    Some(start..end)
}
