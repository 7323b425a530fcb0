//! A journal by which a process that has joined a cache reports the blocks that it adds to the
//! cache's owner.
//!
//! Each block is a line of an append-only file: `TENANT BLOCK BYTES`, with `-` for a public block.
//! The owner reads it incrementally. Invariant: a line is written after its block has its final
//! name; the owner relies on a line only as far as the block's file exists.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::block::BlockDigest;

/// The tenant of a block (`None` for a public block), and the block's digest.
pub(super) type BlockKey = (Option<BlockDigest>, BlockDigest);

const NAME: &str = "joined";
const PUBLIC: &str = "-";
/// The most bytes that are read in one step.
const CHUNK_BYTES: u64 = 1 << 20;

/// The view that one process has of the journal.
pub(super) struct Journal {
    file: File,
    read: u64,
}

impl Journal {
    /// Makes the owner's view, and empties the file. To be created before the owner scans the
    /// cache.
    pub fn begin(folder: &Path) -> io::Result<Self> {
        let journal = Self::join(folder)?;
        // Processes that have joined append at the end, wherever that is now.
        journal.file.set_len(0)?;
        Ok(journal)
    }

    /// Makes the view of a process that joins.
    pub fn join(folder: &Path) -> io::Result<Self> {
        let mut options = File::options();
        let file = options.create(true).read(true).append(true).open(folder.join(NAME))?;
        Ok(Self { file, read: 0 })
    }

    /// Appends a block. Uses a single write, so that lines of two processes do not mix.
    pub fn append(&mut self, (tenant, block): &BlockKey, bytes: u64) -> io::Result<()> {
        let tenant = tenant.map_or_else(|| PUBLIC.to_owned(), |tenant| tenant.to_string());
        self.file.write_all(format!("{tenant} {block} {bytes}\n").as_bytes())
    }

    /// Reads the blocks that were appended since the last call.
    pub fn updates(&mut self) -> Vec<(BlockKey, u64)> {
        let length = self.file.metadata().map_or(0, |found| found.len());
        let Some(new) = length.checked_sub(self.read).filter(|new| *new > 0) else {
            return Vec::new();
        };
        let mut bytes = vec![0; new.min(CHUNK_BYTES) as usize];
        let Ok(count) = self.file.read_at(&mut bytes, self.read) else { return Vec::new() };
        // A line without its end is still being written.
        let whole = bytes[..count].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.read += whole as u64;
        String::from_utf8_lossy(&bytes[..whole]).lines().filter_map(read).collect()
    }
}

/// Parses one line; `None` if it is invalid.
fn read(line: &str) -> Option<(BlockKey, u64)> {
    let mut words = line.split(' ');
    let tenant = match words.next()? {
        PUBLIC => None,
        tenant => Some(tenant.parse().ok()?),
    };
    let block = words.next()?.parse().ok()?;
    let bytes = words.next()?.parse().ok()?;
    words.next().is_none().then_some(((tenant, block), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::BlockDigest;

    #[test]
    fn lines_are_read_once_and_whole() {
        let folder = tempfile::tempdir().unwrap();
        let mut owner = Journal::begin(folder.path()).unwrap();
        let mut joined = Journal::join(folder.path()).unwrap();
        assert!(owner.updates().is_empty());
        let block = BlockDigest::of(b"block");
        let tenant = BlockDigest::of(b"tenant");
        joined.append(&(None, block), 7).unwrap();
        Journal::join(folder.path()).unwrap().append(&(Some(tenant), block), 9).unwrap();
        assert_eq!(owner.updates(), [((None, block), 7), ((Some(tenant), block), 9)]);
        assert!(owner.updates().is_empty());
        joined.file.write_all(b"nonsense\n- ").unwrap();
        assert!(owner.updates().is_empty());
        joined.file.write_all(format!("{block} 8\n").as_bytes()).unwrap();
        assert_eq!(owner.updates(), [((None, block), 8)]);
        // The next owner starts with an empty file, and a process that had joined continues to
        // append.
        let mut next = Journal::begin(folder.path()).unwrap();
        joined.append(&(None, block), 5).unwrap();
        assert_eq!(next.updates(), [((None, block), 5)]);
    }
}
