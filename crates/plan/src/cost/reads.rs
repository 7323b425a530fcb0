//! The requests and bytes that a task reads.

/// The requests that a task sends to read files, with the bytes and rows that it reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reads {
    pub(super) requests: u64,
    pub(super) bytes: u64,
    /// Rows of the row groups that are read.
    pub(super) rows: u64,
}

impl Reads {
    pub(super) fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.rows += other.rows;
    }
}
