//! The pieces of files that different workers can read.

use std::ops::Range;

/// The least bytes of a piece of a text file. A header line is never longer, so it lies in the first
/// piece.
const TEXT_PIECE: u64 = snowmelt_execute::read::MAX_HEADER_BYTES as u64;

/// The most pieces of a text file.
const MAX_PIECES: u64 = 4096;

/// A piece of a file: a reader reads what begins in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) range: Range<u64>,
    /// Bytes that are read.
    pub(super) bytes: u64,
}

/// The only piece of a file.
pub(super) fn whole(size: u64) -> Vec<Piece> {
    vec![Piece { range: 0..size, bytes: size }]
}

/// The pieces of a text file that can be divided at every line break.
pub(super) fn of_lines(size: u64) -> Vec<Piece> {
    let step = TEXT_PIECE.max(size.div_ceil(MAX_PIECES));
    // A remainder is part of the last piece.
    let count = (size / step).max(1);
    let end = |index| if index + 1 == count { size } else { (index + 1) * step };
    let piece = |index| {
        let range = index * step..end(index);
        Piece { bytes: range.end - range.start, range }
    };
    (0..count).map(piece).collect()
}

/// The pieces of an Arrow file, one for each record batch. One piece if they are out of order.
pub(super) fn of_batches(batches: impl Iterator<Item = Range<u64>>, size: u64) -> Vec<Piece> {
    let batches: Vec<Range<u64>> = batches.collect();
    if !batches.windows(2).all(|pair| pair[0].end <= pair[1].start) {
        return whole(size);
    }
    let end = |index: usize| batches.get(index + 1).map_or(size, |next| next.start);
    let piece = |(index, batch): (usize, &Range<u64>)| Piece {
        range: batch.start..end(index),
        bytes: batch.end - batch.start,
    };
    batches.iter().enumerate().map(piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_lines_are_contiguous() {
        for size in [1, TEXT_PIECE, 2 * TEXT_PIECE - 1, 2 * TEXT_PIECE, 9 * TEXT_PIECE + 7, 1 << 40]
        {
            let pieces = of_lines(size);
            assert_eq!((pieces[0].range.start, pieces[pieces.len() - 1].range.end), (0, size));
            assert!(pieces.windows(2).all(|pair| pair[0].range.end == pair[1].range.start));
            assert_eq!(pieces.iter().map(|piece| piece.bytes).sum::<u64>(), size);
            assert!(pieces.len() <= MAX_PIECES as usize);
            assert!(pieces.len() == 1 || pieces.iter().all(|piece| piece.bytes >= TEXT_PIECE));
        }
    }

    #[test]
    fn batches_out_of_order_are_one_piece() {
        let pieces = of_batches([8..20, 24..40].into_iter(), 50);
        let expected = [(8..24, 12), (24..50, 16)];
        assert_eq!(pieces, expected.map(|(range, bytes)| Piece { range, bytes }));
        assert_eq!(of_batches([24..40, 8..20].into_iter(), 50), whole(50));
        assert!(of_batches(std::iter::empty(), 50).is_empty());
    }
}
