//! Blocks that nobody has asked for yet, from the source to the disk.
//!
//! What is fetched ahead takes no more memory than the requests that are under way. Without a disk
//! cache there is nowhere to put it, and nothing is fetched.

use std::ops::Range;

use super::Blocks;
use super::blocks::REQUEST_BYTES;
use super::flight::Claim;
use crate::Result;
use crate::block::{BlockDigest, OciDigest, Table};

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
    /// fetched and claimed for it.
    pub(super) fn behind(
        &self,
        table: &Table,
        missing: Range<usize>,
        more: usize,
    ) -> (usize, Option<Claim<'_>>) {
        let most = table.entries().len().min(missing.end + more);
        let mut end = missing.end;
        while end < most
            && self.lacks(table, end)
            && stored(table, missing.start..end + 1) <= REQUEST_BYTES
        {
            end += 1;
        }
        let digests = table.entries()[missing.end..end].iter().map(|entry| entry.digest);
        match self.flights.claim(&digests.collect::<Vec<_>>()) {
            Some(claim) => (end, Some(claim)),
            None => (missing.end, None),
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
