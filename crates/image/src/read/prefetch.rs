//! Prefetch: copies blocks from the source to the disk cache before they are requested.
//!
//! Prefetched blocks take no more memory than the requests in flight. Without a disk cache there is
//! nowhere to store them, and nothing is prefetched.

use std::ops::Range;
use std::sync::Arc;

use futures::stream::{self, TryStreamExt};

use super::Blocks;
use super::blocks::REQUEST_BYTES;
use super::in_flight::Claim;
use crate::Result;
use crate::block::{BlockDigest, OciDigest, Table};

/// A sequential reader requests more blocks when this many remain,
const MARGIN: usize = 4;
/// and then requests this many.
const BATCH: usize = 8;
/// Requests for a run of blocks at the same time, if they are of several stripes.
const STRIPES_AT_ONCE: usize = 2;

impl Blocks {
    /// Fetches these blocks of a blob to the disk, except for those that are already being fetched.
    pub(super) async fn prefetch(
        &self,
        blob: &OciDigest,
        table: &Table,
        wanted: Range<usize>,
    ) -> Result<()> {
        let runs = self.runs(blob, table, wanted);
        let fetching = runs.into_iter().map(|run| Ok(self.prefetch_run(blob, table, run)));
        stream::iter(fetching).try_for_each_concurrent(STRIPES_AT_ONCE, |fetched| fetched).await
    }

    /// The same for blocks of one stripe.
    async fn prefetch_run(
        &self,
        blob: &OciDigest,
        table: &Table,
        wanted: Range<usize>,
    ) -> Result<()> {
        let missing: Vec<BlockDigest> = wanted
            .clone()
            .filter(|index| self.lacks(table, *index))
            .map(|index| table.entries()[index].digest)
            .collect();
        let claim = self.in_flight.claim_free(&missing);
        let ours = |index: &usize| claim.has(&table.entries()[*index].digest);
        let mut next = wanted.start;
        while let Some(start) = (next..wanted.end).find(ours) {
            let fits = |end: &usize| stored(table, start..*end + 1) <= REQUEST_BYTES;
            let end = (start + 1..wanted.end).find(|end| !ours(end) || !fits(end));
            let end = end.unwrap_or(wanted.end);
            self.fetch_stored(blob, table, start..end).await?;
            next = end;
        }
        Ok(())
    }

    /// Adjacent blocks by their stripes.
    fn runs(&self, blob: &OciDigest, table: &Table, blocks: Range<usize>) -> Vec<Range<usize>> {
        let mut runs = Vec::new();
        let mut left = blocks;
        while !left.is_empty() {
            let end = self.end_of_stripe(blob, table, left.clone());
            runs.push(left.start..end);
            left.start = end;
        }
        runs
    }

    /// The end of a request for `missing` that is extended by up to `more` following blocks, with
    /// the claim to them. `None` if there are no such blocks that are missing and unclaimed.
    pub(super) fn extend(
        &self,
        blob: &OciDigest,
        table: &Table,
        missing: Range<usize>,
        more: usize,
    ) -> Option<(usize, Claim)> {
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
        let digests = table.entries()[missing.end..end].iter().map(|entry| entry.digest);
        Some((end, self.in_flight.claim(&digests.collect::<Vec<_>>())?))
    }

    /// For a sequential reader that has just read the block before `next`: requests more blocks
    /// while some are still available or in flight, so that the reader never waits for a request.
    pub(super) fn read_ahead(self: &Arc<Self>, blob: &OciDigest, table: &Arc<Table>, next: usize) {
        let from = next + MARGIN;
        let end = table.entries().len().min(from + BATCH);
        // Only if it fills whole requests.
        let is_worth_it = end.saturating_sub(from) == BATCH
            && stored(table, from..end) <= REQUEST_BYTES
            && (from..end).all(|index| self.lacks(table, index));
        if !is_worth_it {
            return;
        }
        let digests = |run: Range<usize>| -> Vec<BlockDigest> {
            table.entries()[run].iter().map(|entry| entry.digest).collect()
        };
        let Some(mut claim) = self.in_flight.claim(&digests(from..end)) else { return };
        for run in self.runs(blob, table, from..end) {
            let claim = claim.divide(&digests(run.clone()));
            self.stream_ahead(blob, table, run, claim);
        }
    }

    /// Whether a block is not in the disk cache and could be stored there.
    fn lacks(&self, table: &Table, index: usize) -> bool {
        let entry = &table.entries()[index];
        entry.stored > 0 && self.cache.as_ref().is_some_and(|cache| !cache.has(entry))
    }
}

fn stored(table: &Table, blocks: Range<usize>) -> u64 {
    let stored = table.stored(blocks);
    stored.end - stored.start
}
