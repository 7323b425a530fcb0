//! The version of a file that is read again when it changes.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// A value that differs between two versions of a file: those of another content, owner or mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileVersion {
    device: u64,
    inode: u64,
    bytes: u64,
    /// When content, owner or mode was changed: seconds since 1970, and nanoseconds of the second.
    changed_s: i64,
    changed_ns: i64,
}

impl FileVersion {
    pub fn new(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.len(),
            changed_s: found.ctime(),
            changed_ns: found.ctime_nsec(),
        }
    }
}
