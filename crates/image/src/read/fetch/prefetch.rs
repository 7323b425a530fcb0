//! Prefetch: copies blocks from the source to the disk cache before they are requested.
//!
//! Prefetched blocks take no more memory than the requests in flight. Without a disk cache there is
//! nowhere to store them, and nothing is prefetched.

use std::ops::Range;
use std::sync::Arc;

use futures::FutureExt;
use futures::stream::{self, TryStreamExt};
use tokio::sync::Semaphore;

use super::BlockStore;
use super::blocks::REQUEST_BYTES;
use super::claims::BlockClaim;
use crate::Result;
use crate::block::{BlockDigest, BlockTable, OciDigest};

/// The most blocks that one request fetches in addition to the wanted ones, for a reader that is
/// known to be sequential.
pub(in crate::read) const MAX_MORE: usize = 8;
/// The number of blocks ahead of a sequential reader at which it requests more blocks.
const MARGIN: usize = 4;
/// The number of blocks that a sequential reader then requests.
const BATCH: usize = 8;
/// The window in which a sequential reader requests blocks of several stripes, as a factor of the
/// number of blocks by which a request of one stripe would be extended: up to 8 MiB. Stripes come
/// from different hosts: a host that is slower for a while must not keep the link from being used
/// for the others.
const STRIPED_WINDOW: usize = 2;
/// The most requests of one stripe at the same time: while one answer arrives, the next request is
/// under way. With more requests, the first block of each would arrive later, and also at the hosts
/// that read from this one.
const OF_A_STRIPE: usize = 2;
/// The most stripes that have requests of their own.
const STRIPES: usize = 4;

/// The turns of the requests ahead of one reader, by stripe.
pub(in crate::read) struct PrefetchTurns([Arc<Semaphore>; STRIPES]);

impl Default for PrefetchTurns {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Arc::new(Semaphore::new(OF_A_STRIPE))))
    }
}

impl BlockStore {
    /// Fetches these blocks of a blob to the disk, except for those that are already being fetched.
    pub(in crate::read) async fn prefetch(
        self: &Arc<Self>,
        blob: &OciDigest,
        table: &Arc<BlockTable>,
        wanted: Range<usize>,
    ) -> Result<()> {
        let mut stripes: [Vec<Range<usize>>; STRIPES] = Default::default();
        for run in self.runs(blob, table, wanted) {
            stripes[self.stripe(blob, table, run.start)].push(run);
        }
        let of_a_stripe = |runs: Vec<Range<usize>>| {
            let fetching = runs.into_iter().map(|run| Ok(self.prefetch_run(blob, table, run)));
            stream::iter(fetching).try_for_each_concurrent(OF_A_STRIPE, |fetched| fetched).boxed()
        };
        futures::future::try_join_all(stripes.map(of_a_stripe)).await.map(drop)
    }

    fn stripe(&self, blob: &OciDigest, table: &BlockTable, block: usize) -> usize {
        self.source.stripe(blob, table.stored(block..block + 1).start) % STRIPES
    }

    /// Prefetches blocks of one stripe.
    async fn prefetch_run(
        self: &Arc<Self>,
        blob: &OciDigest,
        table: &Arc<BlockTable>,
        wanted: Range<usize>,
    ) -> Result<()> {
        let missing: Vec<BlockDigest> = wanted
            .clone()
            .filter(|index| self.lacks(table, *index))
            .map(|index| table.entries()[index].digest)
            .collect();
        let mut claim = self.in_flight.claim_free(&missing);
        let mut next = wanted.start;
        loop {
            // Another reader may have fetched one since it was looked for, and released it.
            let ours = |index: &usize| {
                claim.has(&table.entries()[*index].digest) && self.lacks(table, *index)
            };
            let Some(start) = (next..wanted.end).find(ours) else { break };
            let fits = |end: &usize| stored(table, start..*end + 1) <= REQUEST_BYTES;
            let end = (start + 1..wanted.end).find(|end| !ours(end) || !fits(end));
            next = end.unwrap_or(wanted.end);
            self.fetch_each(blob, table, start..next, &mut claim).await?;
        }
        Ok(())
    }

    /// Splits adjacent blocks into runs, each in one stripe.
    fn runs(
        &self,
        blob: &OciDigest,
        table: &BlockTable,
        blocks: Range<usize>,
    ) -> Vec<Range<usize>> {
        let mut runs = Vec::new();
        let mut left = blocks;
        while !left.is_empty() {
            let end = self.end_of_stripe(blob, table, left.clone());
            runs.push(left.start..end);
            left.start = end;
        }
        runs
    }

    /// Returns the end of a request for `missing` that is extended by up to `more` following
    /// blocks, with the claim to those blocks. `None` if no following blocks are missing and
    /// unclaimed.
    pub(super) fn extend(
        &self,
        blob: &OciDigest,
        table: &BlockTable,
        missing: Range<usize>,
        more: usize,
    ) -> Option<(usize, BlockClaim)> {
        let most = table.entries().len().min(missing.end + more);
        let most = self.end_of_stripe(blob, table, missing.start..most);
        let mut end = missing.end;
        while end < most
            && self.lacks(table, end)
            && stored(table, missing.start..end + 1) <= REQUEST_BYTES
        {
            end += 1;
        }
        if end == missing.end {
            return None;
        }
        Some((end, self.claim(table, missing.end..end)?))
    }

    /// Requests more blocks for a sequential reader that has just read the block before `next`,
    /// while some blocks are still available or in flight, so that the reader never waits for a
    /// request.
    pub(in crate::read) fn read_ahead(
        self: &Arc<Self>,
        blob: &OciDigest,
        table: &Arc<BlockTable>,
        next: usize,
        more: usize,
        turns: &PrefetchTurns,
    ) {
        let from = next + MARGIN;
        let count = table.entries().len();
        let end = count.min(from + BATCH);
        // Nothing else is looked up where all of it is cached.
        let farthest = count.min(end.max(next + STRIPED_WINDOW * more));
        if !(next..farthest).any(|index| self.lacks(table, index)) {
            return;
        }
        if next < end && self.end_of_stripe(blob, table, next..end) < end {
            return self.read_stripes_ahead(blob, table, next, more, turns);
        }
        if more < MAX_MORE {
            return;
        }
        // Only if it fills whole requests.
        let is_worth_it = end.saturating_sub(from) == BATCH
            && stored(table, from..end) <= REQUEST_BYTES
            && (from..end).all(|index| self.lacks(table, index));
        if !is_worth_it {
            return;
        }
        if let Some(claim) = self.claim(table, from..end) {
            self.stream_ahead(blob, table, from..end, claim, None);
        }
    }

    /// Reads ahead where the next blocks are in several stripes. Each run of blocks is a request,
    /// and at most `OF_A_STRIPE` requests of a stripe are made at the same time.
    fn read_stripes_ahead(
        self: &Arc<Self>,
        blob: &OciDigest,
        table: &Arc<BlockTable>,
        next: usize,
        more: usize,
        turns: &PrefetchTurns,
    ) {
        let count = table.entries().len();
        let window = STRIPED_WINDOW * more;
        let end = count.min(next + window);
        for run in self.runs(blob, table, next..end) {
            // The last one is requested as a whole, when the reader has come nearer.
            let is_cut = run.end == end && end < count;
            if is_cut || !run.clone().all(|index| self.lacks(table, index)) {
                continue;
            }
            if let Some(claim) = self.claim(table, run.clone()) {
                let turn = Arc::clone(&turns.0[self.stripe(blob, table, run.start)]);
                self.stream_ahead(blob, table, run, claim, Some(turn));
            }
        }
    }

    /// Claims blocks that are not in the disk cache; `None` if one is there or claimed.
    fn claim(&self, table: &BlockTable, blocks: Range<usize>) -> Option<BlockClaim> {
        let digests: Vec<_> =
            table.entries()[blocks.clone()].iter().map(|entry| entry.digest).collect();
        let claim = self.in_flight.claim(&digests)?;
        // A block is stored before it is released, so from now on none appears.
        let mut indexes = blocks;
        indexes.all(|index| self.lacks(table, index)).then_some(claim)
    }

    /// Returns whether a block is not in the disk cache and could be stored there.
    fn lacks(&self, table: &BlockTable, index: usize) -> bool {
        let entry = &table.entries()[index];
        entry.stored > 0 && self.cache.as_ref().is_some_and(|cache| !cache.has(entry))
    }
}

fn stored(table: &BlockTable, blocks: Range<usize>) -> u64 {
    let stored = table.stored(blocks);
    stored.end - stored.start
}
