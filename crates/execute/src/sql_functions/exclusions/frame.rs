//! The rows that are left of a frame: ranges of the rows of a partition.

use std::ops::Range;

/// The rows that a frame leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Excluded {
    CurrentRow,
    Group,
    Ties,
}

impl Excluded {
    pub(super) const ALL: [Self; 3] = [Self::CurrentRow, Self::Group, Self::Ties];

    /// The words behind EXCLUDE.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::CurrentRow => "current row",
            Self::Group => "group",
            Self::Ties => "ties",
        }
    }

    /// Returns the rest of the frame of a row, whose peers are the rows of a group.
    pub(super) fn left(
        self,
        frame: &Range<usize>,
        row: usize,
        group: &Range<usize>,
    ) -> Vec<Range<usize>> {
        let frame = std::slice::from_ref(frame);
        match self {
            Self::CurrentRow => without(frame, std::slice::from_ref(&(row..row + 1))),
            Self::Group => without(frame, std::slice::from_ref(group)),
            Self::Ties => without(frame, &[group.start..row, row + 1..group.end]),
        }
    }
}

/// The rows of ranges that are not in others. All ranges are in order and apart from each other.
pub(super) fn without(ranges: &[Range<usize>], others: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut left = Vec::new();
    for range in ranges {
        let mut start = range.start;
        for other in others.iter().filter(|other| other.start < range.end) {
            if other.start > start {
                left.push(start..other.start);
            }
            start = start.max(other.end);
        }
        if start < range.end {
            left.push(start..range.end);
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranges as pairs of numbers.
    fn pairs(ranges: &[Range<usize>]) -> Vec<(usize, usize)> {
        ranges.iter().map(|range| (range.start, range.end)).collect()
    }

    #[test]
    fn what_is_left_of_a_frame() {
        let left = |kind: Excluded, frame: Range<usize>| pairs(&kind.left(&frame, 4, &(3..6)));
        assert_eq!(left(Excluded::CurrentRow, 1..8), [(1, 4), (5, 8)]);
        assert_eq!(left(Excluded::Group, 1..8), [(1, 3), (6, 8)]);
        assert_eq!(left(Excluded::Ties, 1..8), [(1, 3), (4, 5), (6, 8)]);
        assert_eq!(left(Excluded::Ties, 4..5), [(4, 5)]);
        assert_eq!(left(Excluded::Group, 5..9), [(6, 9)]);
        assert_eq!(left(Excluded::Ties, 5..9), [(6, 9)]);
        assert_eq!(left(Excluded::CurrentRow, 5..9), [(5, 9)]);
        assert!(left(Excluded::Group, 3..6).is_empty());
        assert!(left(Excluded::CurrentRow, 8..8).is_empty());
    }

    #[test]
    fn ranges_without_others() {
        let of = |pairs: &[(usize, usize)]| -> Vec<Range<usize>> {
            pairs.iter().map(|(start, end)| *start..*end).collect()
        };
        let left = |ranges: &[(usize, usize)], others: &[(usize, usize)]| {
            pairs(&without(&of(ranges), &of(others)))
        };
        assert_eq!(left(&[(0, 4), (6, 9)], &[(2, 7)]), [(0, 2), (7, 9)]);
        assert_eq!(left(&[(0, 4)], &[(0, 1), (2, 3)]), [(1, 2), (3, 4)]);
        assert_eq!(left(&[(0, 4)], &[]), [(0, 4)]);
        assert!(left(&[(2, 4)], &[(0, 9)]).is_empty());
    }
}
