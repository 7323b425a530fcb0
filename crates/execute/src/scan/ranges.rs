//! The requests for some byte ranges of a file: near ones are one request, and a long one is several
//! if nothing else could be read meanwhile (the levels 1 and 4 of Lambada 4.3).

use std::ops::Range;

use object_store::OBJECT_STORE_COALESCE_DEFAULT;

/// The least bytes of a piece into which a range is split.
const PIECE: u64 = 8 << 20;

/// The most requests at a time into which a read is split: each costs money.
const AT_ONCE: u64 = 4;

/// The requests for some ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// The ranges of the requests, in order and without overlaps.
    pub ranges: Vec<Range<u64>>,
    /// Requests that were saved because ranges are near each other.
    pub merged: u64,
    /// Requests that were added because ranges are long.
    pub split: u64,
}

impl Requests {
    /// Plans the requests for some ranges. `is_last` is true if nothing else can be read at the
    /// same time.
    pub fn new(ranges: &[Range<u64>], is_last: bool) -> Self {
        let near = merged(ranges.to_vec());
        let saved = (ranges.len() - near.len()) as u64;
        let most = AT_ONCE / (near.len() as u64).max(1);
        let pieces = |range: &Range<u64>| match is_last {
            true => ((range.end - range.start) / PIECE).min(most).max(1),
            false => 1,
        };
        let split: Vec<Range<u64>> =
            near.iter().flat_map(|range| cut(range.clone(), pieces(range))).collect();
        let added = (split.len() - near.len()) as u64;
        Self { ranges: split, merged: saved, split: added }
    }
}

/// Cuts a range into pieces of about the same length.
fn cut(range: Range<u64>, pieces: u64) -> impl Iterator<Item = Range<u64>> {
    let length = range.end - range.start;
    let at = move |piece| range.start + length * piece / pieces;
    (0..pieces).map(move |piece| at(piece)..at(piece + 1))
}

/// Ranges as they are requested: those with small gaps between them are one.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end + OBJECT_STORE_COALESCE_DEFAULT => {
                last.end = last.end.max(range.end);
            }
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn near_ranges_are_one_request() {
        let gap = OBJECT_STORE_COALESCE_DEFAULT;
        let ranges = vec![50 + gap..60 + gap, 0..50, 61 + 2 * gap..70 + 2 * gap];
        let found = Requests::new(&ranges, true);
        assert_eq!(found.ranges, [0..60 + gap, 61 + 2 * gap..70 + 2 * gap]);
        assert_eq!((found.merged, found.split), (1, 0));
        assert_eq!(Requests::new(&[], true), Requests::default());
    }

    #[test]
    fn a_long_range_is_split_if_nothing_else_is_left() {
        let one = |pieces: u64| std::iter::once(0..pieces * PIECE).collect::<Vec<_>>();
        assert_eq!(Requests::new(&one(3), false).ranges, one(3));
        let split = Requests::new(&one(3), true);
        assert_eq!(split.ranges, [0..PIECE, PIECE..2 * PIECE, 2 * PIECE..3 * PIECE]);
        assert_eq!((split.merged, split.split), (0, 2));
        assert_eq!(Requests::new(&one(100), true).ranges.len(), 4);
        // Two at a time may become four, four may not become more.
        let far = |count: u64| (0..count).map(|n| n * 20 * PIECE..(n * 20 + 10) * PIECE);
        assert_eq!(Requests::new(&far(2).collect::<Vec<_>>(), true).ranges.len(), 4);
        assert_eq!(Requests::new(&far(5).collect::<Vec<_>>(), true).ranges.len(), 5);
    }

    proptest! {
        #[test]
        fn all_bytes_are_requested_once(
            ranges in prop::collection::vec((0u64..100_000_000, 0u64..40_000_000), 0..9),
            is_last in any::<bool>(),
        ) {
            let ranges: Vec<_> = ranges.into_iter().map(|(at, length)| at..at + length).collect();
            let found = Requests::new(&ranges, is_last).ranges;
            prop_assert!(found.windows(2).all(|pair| pair[0].end <= pair[1].start));
            let joined = merged(found);
            for range in ranges {
                let holds = |it: &Range<u64>| it.start <= range.start && range.end <= it.end;
                prop_assert!(joined.iter().any(holds));
            }
        }
    }
}
