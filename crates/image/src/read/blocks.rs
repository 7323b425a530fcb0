//! Stored blocks from memory, disk or source, each fetched once and verified.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;

use super::flight::{Claim, Flights};
use super::recent::Recent;
use super::{BlockCache, BlockSource};
use crate::block::{BlockDigest, BlockEntry, OciDigest, Table, verify};
use crate::{Error, Result};

/// Neighbours are fetched by one request up to so many stored bytes.
pub(super) const REQUEST_BYTES: u64 = 4 << 20;
/// How often a block is fetched whose bytes are wrong.
const DAMAGED_ATTEMPTS: u32 = 3;
/// Stored bytes in memory: with what is under way, below 30 MiB for each process.
const RECENT_BYTES: usize = 3 << 20;

/// What was done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests to the source.
    pub requests: u64,
    /// Stored bytes that came from the source.
    pub fetched_bytes: u64,
    /// Blocks that came from the disk.
    pub cached: u64,
    /// Blocks that came damaged, from the source or the disk.
    pub damaged: u64,
    /// Blocks that the disk could not keep.
    pub unkept: u64,
}

/// One for each process: all blobs share its source, memory and disk.
pub struct Blocks {
    pub(super) source: Arc<dyn BlockSource>,
    pub(super) cache: Option<Arc<BlockCache>>,
    recent: Recent<BlockDigest>,
    /// Decompressed frames of which a part was read; by block and first byte.
    pub(super) frames: Recent<(BlockDigest, usize)>,
    pub(super) flights: Flights,
    pub(super) requests: AtomicU64,
    pub(super) fetched_bytes: AtomicU64,
    cached: AtomicU64,
    damaged: AtomicU64,
    /// Whether the last block could not be kept.
    uncached: AtomicBool,
    unkept: AtomicU64,
}

impl Blocks {
    /// Without a cache every miss goes to the source.
    pub fn new(source: Arc<dyn BlockSource>, cache: Option<Arc<BlockCache>>) -> Self {
        Self {
            source,
            cache,
            recent: Recent::new(RECENT_BYTES),
            frames: Recent::new(super::frames::MOST_BYTES),
            flights: Flights::default(),
            requests: AtomicU64::new(0),
            fetched_bytes: AtomicU64::new(0),
            cached: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            uncached: AtomicBool::new(false),
            unkept: AtomicU64::new(0),
        }
    }

    /// What was done so far.
    pub fn counts(&self) -> Counts {
        Counts {
            requests: self.requests.load(Ordering::Relaxed),
            fetched_bytes: self.fetched_bytes.load(Ordering::Relaxed),
            cached: self.cached.load(Ordering::Relaxed),
            damaged: self.damaged.load(Ordering::Relaxed)
                + self.cache.as_ref().map_or(0, |cache| cache.damaged()),
            unkept: self.unkept.load(Ordering::Relaxed),
        }
    }

    /// The blocks `wanted` of a blob, in order. Misses that are neighbours are one request, which
    /// goes on with up to `more` blocks behind the last one: a reader that goes through a blob will
    /// want them next, and a request costs more than what it brings.
    pub(super) async fn get(
        self: &Arc<Self>,
        blob: &OciDigest,
        table: &Arc<Table>,
        wanted: Range<usize>,
        more: usize,
    ) -> Result<Vec<Bytes>> {
        let mut found: Vec<Option<Bytes>> = vec![None; wanted.len()];
        loop {
            for (slot, index) in found.iter_mut().zip(wanted.clone()) {
                if slot.is_none() {
                    *slot = self.held(table, index);
                }
            }
            let Some(missing) = first_gap(&found, table, wanted.start) else {
                return Ok(found.into_iter().flatten().collect());
            };
            let digests: Vec<BlockDigest> =
                table.entries()[missing.clone()].iter().map(|entry| entry.digest).collect();
            let Some(_claim) = self.flights.claim(&digests) else {
                self.flights.wait(&digests).await;
                continue;
            };
            let is_last = missing.end == wanted.end;
            let behind = self.behind(table, missing.clone(), if is_last { more } else { 0 });
            let blocks = self.fetch(blob, table, missing.clone(), behind).await?;
            let at = missing.start - wanted.start;
            for (slot, block) in found[at..].iter_mut().zip(blocks) {
                *slot = Some(block);
            }
        }
    }

    /// Whether all blocks are on the disk.
    pub(super) fn has_all(&self, table: &Table) -> bool {
        let Some(cache) = &self.cache else { return false };
        table.entries().iter().all(|entry| entry.stored == 0 || cache.has(entry))
    }

    /// A block that needs no request.
    fn held(&self, table: &Table, index: usize) -> Option<Bytes> {
        let entry = &table.entries()[index];
        if entry.stored == 0 {
            return Some(Bytes::new());
        }
        if let Some(block) = self.recent.get(&entry.digest) {
            return Some(block);
        }
        let stored = Bytes::from(self.cache.as_ref()?.get(entry)?);
        self.cached.fetch_add(1, Ordering::Relaxed);
        self.recent.put(entry.digest, stored.clone());
        Some(stored)
    }

    /// Neighbours from the source; those that are claimed behind them are only kept.
    async fn fetch(
        self: &Arc<Self>,
        blob: &OciDigest,
        table: &Arc<Table>,
        indexes: Range<usize>,
        behind: Option<(usize, Claim)>,
    ) -> Result<Vec<Bytes>> {
        let streamed = match behind {
            Some(behind) => self.fetch_streamed(blob, table, indexes.clone(), behind).await?,
            None => None,
        };
        let stored = match streamed {
            Some(stored) => stored,
            // What was lost is asked for again, without what nobody wants yet.
            None => self.fetch_stored(blob, table, indexes.clone()).await?,
        };
        for (index, stored) in indexes.zip(&stored) {
            // A copy, lest it hold all of the answer that it came in.
            let digest = table.entries()[index].digest;
            self.recent.put(digest, Bytes::copy_from_slice(stored));
        }
        Ok(stored)
    }

    /// The stored bytes of neighbours, verified and kept; damaged ones are fetched again.
    pub(super) async fn fetch_stored(
        &self,
        blob: &OciDigest,
        table: &Table,
        indexes: Range<usize>,
    ) -> Result<Vec<Bytes>> {
        let range = table.stored(indexes.clone());
        let cut = |bytes: &Bytes| cut(bytes, table, indexes.clone());
        let stored = self.ask_sound(blob, range, cut).await?;
        for (index, stored) in indexes.zip(&stored) {
            self.keep(&table.entries()[index], stored);
        }
        Ok(stored)
    }

    /// What `check` makes of the bytes of a blob; bytes that it finds damaged are fetched again.
    pub(super) async fn ask_sound<T>(
        &self,
        blob: &OciDigest,
        range: Range<u64>,
        check: impl Fn(&Bytes) -> Result<T>,
    ) -> Result<T> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let asked = self.ask(blob, range.clone()).await;
            match asked.and_then(|bytes| check(&bytes)) {
                Err(error @ Error::Damaged { .. }) if attempt < DAMAGED_ATTEMPTS => {
                    tracing::warn!(%blob, %error, "fetching damaged bytes again");
                    self.damaged.fetch_add(1, Ordering::Relaxed);
                }
                outcome => return outcome,
            }
        }
    }

    /// Any bytes of a blob from the source, unverified but of that length.
    pub(super) async fn ask(&self, blob: &OciDigest, range: Range<u64>) -> Result<Bytes> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        let bytes = self.source.fetch(blob, range.clone()).await?;
        self.fetched_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if bytes.len() as u64 == range.end - range.start {
            return Ok(bytes);
        }
        let reason = format!("{} bytes came for {range:?}", bytes.len());
        Err(Error::damaged(format!("the blob {blob}"), reason))
    }

    /// A cache that cannot take a block is no reason to fail: the block is here.
    pub(super) fn keep(&self, entry: &BlockEntry, stored: &[u8]) {
        let Some(cache) = self.cache.as_ref().filter(|_| !stored.is_empty()) else { return };
        let Err(error) = cache.put(entry, stored) else {
            return self.uncached.store(false, Ordering::Relaxed);
        };
        self.unkept.fetch_add(1, Ordering::Relaxed);
        // Told once: on a full disk it is so for every block.
        if !self.uncached.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, "blocks are not cached");
        }
    }
}

/// Neighbours out of the bytes of all of them, each verified.
fn cut(bytes: &Bytes, table: &Table, indexes: Range<usize>) -> Result<Vec<Bytes>> {
    let begin = table.stored(indexes.clone()).start;
    let one = |index: usize| {
        let at = table.stored(index..index + 1);
        let stored = bytes.slice((at.start - begin) as usize..(at.end - begin) as usize);
        verify(&stored, &table.entries()[index]).map(|()| stored)
    };
    indexes.map(one).collect()
}

/// The first run of blocks that are missing, as long as one request may be.
fn first_gap(found: &[Option<Bytes>], table: &Table, first: usize) -> Option<Range<usize>> {
    let start = found.iter().position(Option::is_none)?;
    let run = found[start..].iter().take_while(|block| block.is_none()).count();
    let (start, mut end) = (first + start, first + start + 1);
    while end < first + found.len()
        && end - start < run
        && table.stored(start..end + 1).end - table.stored(start..end).start <= REQUEST_BYTES
    {
        end += 1;
    }
    Some(start..end)
}
