//! Blocks that nobody has asked for yet, from the source to the disk.
//!
//! What is fetched ahead takes no more memory than the requests that are under way. Without a disk
//! cache there is nowhere to put it, and nothing is fetched.

use std::ops::Range;
use std::sync::Arc;

use super::Blocks;
use super::blocks::REQUEST_BYTES;
use super::flight::Claim;
use crate::Result;
use crate::block::{BlockDigest, OciDigest, Table};

/// A reader that goes through a blob has so many blocks left when more are asked for,
const MARGIN: usize = 4;
/// namely so many.
const AT_ONCE: usize = 8;

impl Blocks {
    /// Has these blocks of a blob on the disk, but for those that somebody else is fetching.
    pub(super) async fn ahead(
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
        let claim = self.flights.claim_free(&missing);
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

    /// The end of a request for `missing` that brings up to `more` blocks more, which are free to be
    /// fetched, with the claim to them; none if there are no such blocks.
    pub(super) fn behind(
        &self,
        table: &Table,
        missing: Range<usize>,
        more: usize,
    ) -> Option<(usize, Claim)> {
        let most = table.entries().len().min(missing.end + more);
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
        Some((end, self.flights.claim(&digests.collect::<Vec<_>>())?))
    }

    /// For a reader that goes through a blob and has just had the block before `next`: asks for more
    /// before it has used up what is there or under way, so that it never waits for a request.
    pub(super) fn read_on(self: &Arc<Self>, blob: &OciDigest, table: &Arc<Table>, next: usize) {
        let from = next + MARGIN;
        let end = table.entries().len().min(from + AT_ONCE);
        // As soon as a whole request is worth it.
        let is_worth_it = end.saturating_sub(from) == AT_ONCE
            && stored(table, from..end) <= REQUEST_BYTES
            && (from..end).all(|index| self.lacks(table, index));
        if !is_worth_it {
            return;
        }
        let digests = table.entries()[from..end].iter().map(|entry| entry.digest);
        if let Some(claim) = self.flights.claim(&digests.collect::<Vec<_>>()) {
            self.stream_ahead(blob, table, from..end, claim);
        }
    }

    /// Whether a block would have to be fetched and could be kept.
    fn lacks(&self, table: &Table, index: usize) -> bool {
        let entry = &table.entries()[index];
        entry.stored > 0 && self.cache.as_ref().is_some_and(|cache| !cache.has(entry))
    }
}

fn stored(table: &Table, blocks: Range<usize>) -> u64 {
    let stored = table.stored(blocks);
    stored.end - stored.start
}
