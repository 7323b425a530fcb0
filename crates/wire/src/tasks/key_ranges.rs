//! Outputs that are sorted, and read in ranges of their sort keys.
//!
//! A key is bytes: to compare the bytes of two rows is to compare the rows.

use serde::{Deserialize, Serialize};

/// The maximum number of marks of a partition.
pub const MAX_MARKS: usize = 256;

/// The maximum length of the key of a mark.
pub const MARK_KEY_BYTES: usize = 128;

/// A place in a sorted partition at which a frame begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The number of rows before it in the partition.
    pub rows: u64,
    /// The number of bytes before it in the partition.
    pub bytes: u64,
    /// The key of the first row of the frame, or the first [`MARK_KEY_BYTES`] of it.
    pub key: Vec<u8>,
    /// True if the key is longer.
    pub cut: bool,
}

/// A part of sorted rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRange {
    /// The begin of the range: the first row if absent.
    pub from: Option<Edge>,
    /// The end of the range: after the last row if absent.
    pub to: Option<Edge>,
}

/// A place between two sorted rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// The key.
    pub key: Vec<u8>,
    /// True if the edge is after all rows with this key, false if it is before them.
    pub after: bool,
}

impl Edge {
    /// True if a row with this key is before the edge.
    pub fn is_after(&self, key: &[u8]) -> bool {
        match key.cmp(self.key.as_slice()) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => self.after,
            std::cmp::Ordering::Greater => false,
        }
    }
}
