//! Combines the blocks of a start to few requests.
//!
//! A request costs a registry some milliseconds regardless of its size (one registry reads 4 MiB
//! for each), and the blocks of a start are scattered: for an image with scientific packages, 425
//! blocks form 335 runs. Adjacent blocks within a window are therefore fetched together, which
//! leaves 124 requests. The first windows are small, so that the blocks needed first are fetched
//! first.

use std::ops::Range;

use crate::block::Table;

/// Stored bytes of the first window; each later one is twice as large.
const FIRST_WINDOW: u64 = 2 << 20;
const MAX_WINDOW: u64 = 16 << 20;
/// Up to this many stored bytes that no start read are fetched rather than skipped by a second
/// request.
const GAP: u64 = 256 << 10;
/// Stored bytes of a request. Limited, because a read waits for the requests in flight.
const REQUEST: u64 = 2 << 20;

/// The index of a blob, and a range of its blocks.
pub(super) type Request = (usize, Range<usize>);

/// Requests for `blocks`, each with its blob's index in `tables`. Blocks that do not exist are
/// skipped.
pub(super) fn requests(tables: &[&Table], blocks: &[(usize, usize)]) -> Vec<Request> {
    let stored = |blob: usize, range: Range<usize>| {
        let at = tables[blob].stored(range);
        at.end - at.start
    };
    let exists = |(blob, block): &&(usize, usize)| {
        tables.get(*blob).is_some_and(|table| *block < table.entries().len())
    };
    let mut requests = Vec::new();
    let (mut window, mut bytes, mut size) = (Vec::new(), 0, FIRST_WINDOW);
    for (blob, block) in blocks.iter().filter(exists).copied() {
        window.push((blob, block));
        bytes += stored(blob, block..block + 1);
        if bytes >= size {
            close(&mut window, &stored, &mut requests);
            (bytes, size) = (0, MAX_WINDOW.min(2 * size));
        }
    }
    close(&mut window, &stored, &mut requests);
    requests
}

/// Combines adjacent blocks of a window.
fn close(
    window: &mut Vec<(usize, usize)>,
    stored: &impl Fn(usize, Range<usize>) -> u64,
    requests: &mut Vec<Request>,
) {
    window.sort_unstable();
    let first = requests.len();
    for (blob, block) in window.drain(..) {
        match requests[first..].last_mut() {
            Some((last, range))
                if *last == blob
                    && stored(blob, range.end.min(block)..block) <= GAP
                    && stored(blob, range.start..block + 1) <= REQUEST =>
            {
                range.end = range.end.max(block + 1);
            }
            _ => requests.push((blob, block..block + 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{BlockDigest, BlockEntry, BlockSize};

    fn table(blocks: usize, stored: u32) -> Table {
        let size = BlockSize::MIN;
        let entry = |index: usize| BlockEntry { stored, digest: BlockDigest::of(&[index as u8]) };
        let raw = (blocks * size.bytes()) as u64;
        Table::new(size, raw, (0..blocks).map(entry).collect()).unwrap()
    }

    #[test]
    fn combines_adjacent_blocks_and_small_gaps_to_one_request() {
        let (one, two) = (table(100, 60_000), table(10, 60_000));
        let blocks = [(0, 7), (1, 3), (0, 5), (0, 6), (0, 9), (1, 3), (0, 40), (0, 100), (2, 0)];
        let expected = [(0, 5..10), (0, 40..41), (1, 3..4)];
        assert_eq!(requests(&[&one, &two], &blocks), expected);
    }

    #[test]
    fn limits_the_size_of_requests_and_keeps_their_order() {
        let table = table(1000, 60_000);
        let backwards: Vec<(usize, usize)> = (0..1000).rev().map(|block| (0, block)).collect();
        let requests = requests(&[&table], &backwards);
        assert!(requests.iter().all(|(_, range)| range.len() * 60_000 <= REQUEST as usize));
        assert_eq!(requests.iter().map(|(_, range)| range.len()).sum::<usize>(), 1000);
        assert!(requests[0].1.start > 900, "{requests:?}");
        assert!(requests.last().unwrap().1.end < 300, "{requests:?}");
    }
}
