//! Combines the blocks of a start to few requests.
//!
//! A request costs a registry some milliseconds regardless of its size (one registry reads 4 MiB
//! for each), and the blocks of a start are scattered: for an image with scientific packages, 425
//! blocks form 335 runs. Therefore adjacent blocks within a window are fetched together. The blocks
//! between them are fetched too if that takes less time than a request: over a fast link, that
//! leaves 124 requests. The first windows are small, so that the blocks needed first are fetched
//! first.

use std::ops::Range;

use crate::block::BlockTable;

/// The stored bytes of the first window; each later one is twice as large.
const FIRST_WINDOW: u64 = 2 << 20;
const MAX_WINDOW: u64 = 16 << 20;
/// The most stored bytes of a request. Limited, because a read waits for the requests in flight.
const REQUEST: u64 = 2 << 20;

/// The index of a blob, and a range of its blocks.
pub(super) type PrefetchRange = (usize, Range<usize>);

/// Plans the requests for `blocks`, each with its blob's index in `tables`. Blocks that do not
/// exist are skipped. Gaps of up to `gap()` stored bytes that no start read are fetched too,
/// instead of making a second request; `gap` is called again for each window.
pub(super) fn requests(
    tables: &[&BlockTable],
    blocks: &[(usize, usize)],
    gap: impl Fn() -> u64,
) -> impl Iterator<Item = PrefetchRange> {
    let stored = |blob: usize, range: Range<usize>| {
        let at = tables[blob].stored(range);
        at.end - at.start
    };
    let exists = |(blob, block): &&(usize, usize)| {
        tables.get(*blob).is_some_and(|table| *block < table.entries().len())
    };
    let mut left = blocks.iter().filter(exists).copied();
    let mut size = FIRST_WINDOW;
    let windows = std::iter::from_fn(move || {
        let mut window = Vec::new();
        let mut bytes = 0;
        while bytes < size
            && let Some((blob, block)) = left.next()
        {
            bytes += stored(blob, block..block + 1);
            window.push((blob, block));
        }
        size = MAX_WINDOW.min(2 * size);
        (!window.is_empty()).then(|| combined(window, &stored, gap()))
    });
    windows.flatten()
}

/// Combines adjacent blocks of a window.
fn combined(
    mut window: Vec<(usize, usize)>,
    stored: &impl Fn(usize, Range<usize>) -> u64,
    gap: u64,
) -> Vec<PrefetchRange> {
    window.sort_unstable();
    let mut requests: Vec<PrefetchRange> = Vec::new();
    for (blob, block) in window {
        match requests.last_mut() {
            Some((last, range))
                if *last == blob
                    && stored(blob, range.end.min(block)..block) <= gap
                    && stored(blob, range.start..block + 1) <= REQUEST =>
            {
                range.end = range.end.max(block + 1);
            }
            _ => requests.push((blob, block..block + 1)),
        }
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{BlockDigest, BlockEntry, BlockSize};

    fn table(blocks: usize, stored: u32) -> BlockTable {
        let size = BlockSize::MIN;
        let entry = |index: usize| BlockEntry { stored, digest: BlockDigest::of(&[index as u8]) };
        let raw = (blocks * size.bytes()) as u64;
        BlockTable::new(size, raw, (0..blocks).map(entry).collect()).unwrap()
    }

    #[test]
    fn combines_adjacent_blocks_and_small_gaps_to_one_request() {
        let one = table(100, 60_000);
        let two = table(10, 60_000);
        let blocks = [(0, 7), (1, 3), (0, 5), (0, 6), (0, 9), (1, 3), (0, 40), (0, 100), (2, 0)];
        let requests = |gap| requests(&[&one, &two], &blocks, move || gap).collect::<Vec<_>>();
        assert_eq!(requests(60_000), [(0, 5..10), (0, 40..41), (1, 3..4)]);
        assert_eq!(requests(59_999), [(0, 5..8), (0, 9..10), (0, 40..41), (1, 3..4)]);
        assert_eq!(requests(0), requests(59_999));
    }

    #[test]
    fn windows_are_planned_when_their_turn_comes() {
        let table = table(1000, 60_000);
        let gap = std::cell::Cell::new(0);
        let every_second: Vec<(usize, usize)> =
            (0..1000).step_by(2).map(|start| (0, start)).collect();
        let tables = [&table];
        let mut requests = requests(&tables, &every_second, || gap.get());
        assert_eq!(requests.next(), Some((0, 0..1)));
        // Meanwhile the link has turned out to be fast.
        gap.set(60_000);
        let (first, later): (Vec<_>, Vec<_>) = requests.partition(|(_, range)| range.end < 70);
        assert!(first.iter().all(|(_, range)| range.len() == 1), "{first:?}");
        assert!(later.iter().any(|(_, range)| range.len() > 20), "{later:?}");
    }

    #[test]
    fn limits_the_size_of_requests_and_keeps_their_order() {
        let table = table(1000, 60_000);
        let backwards: Vec<(usize, usize)> = (0..1000).rev().map(|block| (0, block)).collect();
        let requests: Vec<_> = requests(&[&table], &backwards, || 200_000).collect();
        assert!(requests.iter().all(|(_, range)| range.len() * 60_000 <= REQUEST as usize));
        assert_eq!(requests.iter().map(|(_, range)| range.len()).sum::<usize>(), 1000);
        assert!(requests[0].1.start > 900, "{requests:?}");
        assert!(requests.last().unwrap().1.end < 300, "{requests:?}");
    }
}
