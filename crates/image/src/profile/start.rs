//! The blocks that a start reads, in order: recorded once, prefetched in that order at every later
//! start. Without prefetch, they are fetched one after another, bound by latency.
//!
//! Invariant: blocks of a profile that do not exist are skipped.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};

use super::plan;
use crate::Result;
use crate::block::{BlockDigest, BlockTable};
use crate::read::BlobReader;

/// The time that a request costs a registry beside its bytes, with several requests in flight. Gaps
/// that a link carries within this time are fetched rather than skipped.
const REQUEST_TIME: Duration = Duration::from_millis(2);
const MAX_GAP: u64 = 256 << 10;

/// Blocks of an image in the order of their first read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartProfile {
    /// The blocks, each as the Merkle root of its blob and its index in the blob.
    pub blocks: Vec<(BlockDigest, u32)>,
}

impl StartProfile {
    /// Records the blocks that these readers of one image have read so far.
    pub fn record<'a>(readers: impl IntoIterator<Item = &'a Arc<BlobReader>>) -> Self {
        let mut found: Vec<(u64, BlockDigest, u32)> = Vec::new();
        for reader in readers {
            let root = reader.summary().root;
            let touched = reader.touched().into_iter();
            found.extend(touched.map(|(moment, block)| (moment, root, block as u32)));
        }
        found.sort_unstable();
        Self { blocks: found.into_iter().map(|(_, root, block)| (root, block)).collect() }
    }

    /// Appends the blocks that only the other start read.
    pub fn merge(&mut self, other: &Self) {
        let known: HashSet<_> = self.blocks.iter().copied().collect();
        self.blocks.extend(other.blocks.iter().filter(|block| !known.contains(block)));
    }

    /// Fetches these blocks to the disk cache, roughly in their order, with up to `concurrency`
    /// requests in flight.
    pub async fn prefetch(&self, readers: &[Arc<BlobReader>], concurrency: usize) -> Result<()> {
        let roots: HashSet<&BlockDigest> = self.blocks.iter().map(|(root, _)| root).collect();
        let readers: Vec<&Arc<BlobReader>> =
            readers.iter().filter(|reader| roots.contains(&reader.summary().root)).collect();
        let find = |(root, block): &(BlockDigest, u32)| {
            let blob = readers.iter().position(|reader| reader.summary().root == *root)?;
            Some((blob, *block as usize))
        };
        let blocks: Vec<(usize, usize)> = self.blocks.iter().filter_map(find).collect();
        let tables = try_join_all(readers.iter().map(|reader| reader.table())).await?;
        let tables: Vec<&BlockTable> = tables.into_iter().map(AsRef::as_ref).collect();
        for (own, reader) in readers.iter().enumerate() {
            let count = tables[own].entries().len();
            let of_reader = blocks.iter().filter(|(blob, block)| *blob == own && *block < count);
            reader.expect(of_reader.map(|(_, block)| *block));
        }
        let fetched = || readers.first().map_or(0, |reader| reader.fetched_bytes());
        let began = Instant::now();
        let before = fetched();
        let gap = || {
            let rate = (fetched() - before) as f64 / began.elapsed().as_secs_f64().max(1e-6);
            MAX_GAP.min((rate * REQUEST_TIME.as_secs_f64()) as u64)
        };
        let requests = stream::iter(plan::requests(&tables, &blocks, gap));
        let prefetched = requests
            .map(|(blob, run)| readers[blob].prefetch(run))
            .buffer_unordered(concurrency.max(1))
            .try_collect()
            .await;
        readers.iter().for_each(|reader| reader.prefetched(prefetched.is_ok()));
        prefetched
    }

    /// Returns consecutive entries of adjacent blocks as ranges.
    pub(super) fn runs(&self) -> Vec<(BlockDigest, Range<usize>)> {
        let mut runs: Vec<(BlockDigest, Range<usize>)> = Vec::new();
        for (root, block) in &self.blocks {
            let block = *block as usize;
            match runs.last_mut() {
                Some((last, run)) if last == root && run.end == block => run.end += 1,
                _ => runs.push((*root, block..block + 1)),
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combines_adjacent_blocks_to_runs_and_merges_in_order() {
        let a = BlockDigest::of(b"a");
        let b = BlockDigest::of(b"b");
        let mut profile = StartProfile { blocks: vec![(a, 3), (a, 4), (b, 5), (a, 5), (a, 2)] };
        assert_eq!(profile.runs(), [(a, 3..5), (b, 5..6), (a, 5..6), (a, 2..3)]);
        profile.merge(&StartProfile { blocks: vec![(b, 9), (a, 4)] });
        assert_eq!(profile.blocks.len(), 6);
        assert_eq!(profile.blocks[5], (b, 9));
    }
}
