//! How a process that joins a cache tells the one that holds it which blocks it brought.
//!
//! Each block is a line of a file that only grows: `TENANT BLOCK BYTES`, with `-` for nobody's. The
//! holder reads on from where it was. Invariant: a block is whole under its name before its line is
//! written, and what a line says is only believed as far as that file is there.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::cache::Key;

const NAME: &str = "joined";
const NOBODY: &str = "-";
/// More than this at once is read in several turns.
const AT_ONCE: u64 = 1 << 20;

/// One process's view of the file.
pub(super) struct Journal {
    file: File,
    read: u64,
}

impl Journal {
    /// The holder's, empty. To be made before the holder looks at what is there.
    pub fn begin(folder: &Path) -> io::Result<Self> {
        let journal = Self::join(folder)?;
        journal.file.set_len(0)?;
        Ok(journal)
    }

    /// A guest's.
    pub fn join(folder: &Path) -> io::Result<Self> {
        let mut options = File::options();
        let file = options.create(true).read(true).append(true).open(folder.join(NAME))?;
        Ok(Self { file, read: 0 })
    }

    /// Tells of a block. One write, so that lines of two guests do not mix.
    pub fn tell(&mut self, (tenant, block): &Key, bytes: u64) -> io::Result<()> {
        let tenant = tenant.map_or_else(|| NOBODY.to_owned(), |tenant| tenant.to_string());
        self.file.write_all(format!("{tenant} {block} {bytes}\n").as_bytes())
    }

    /// The blocks that were told of since the last time.
    pub fn news(&mut self) -> Vec<(Key, u64)> {
        let length = self.file.metadata().map_or(0, |found| found.len());
        let Some(new) = length.checked_sub(self.read).filter(|new| *new > 0) else {
            return Vec::new();
        };
        let mut bytes = vec![0; new.min(AT_ONCE) as usize];
        let Ok(count) = self.file.read_at(&mut bytes, self.read) else { return Vec::new() };
        // What stands behind the last end of a line is still being written.
        let whole = bytes[..count].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.read += whole as u64;
        String::from_utf8_lossy(&bytes[..whole]).lines().filter_map(read).collect()
    }
}

/// One line; one that cannot be read tells of nothing.
fn read(line: &str) -> Option<(Key, u64)> {
    let mut words = line.split(' ');
    let tenant = match words.next()? {
        NOBODY => None,
        tenant => Some(tenant.parse().ok()?),
    };
    let (block, bytes) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    words.next().is_none().then_some(((tenant, block), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::BlockDigest;

    #[test]
    fn lines_are_read_once_and_whole() {
        let folder = tempfile::tempdir().unwrap();
        let mut holder = Journal::begin(folder.path()).unwrap();
        let mut guest = Journal::join(folder.path()).unwrap();
        assert!(holder.news().is_empty());
        let (block, tenant) = (BlockDigest::of(b"block"), BlockDigest::of(b"tenant"));
        guest.tell(&(None, block), 7).unwrap();
        Journal::join(folder.path()).unwrap().tell(&(Some(tenant), block), 9).unwrap();
        assert_eq!(holder.news(), [((None, block), 7), ((Some(tenant), block), 9)]);
        assert!(holder.news().is_empty());
        guest.file.write_all(b"nonsense\n- ").unwrap();
        assert!(holder.news().is_empty());
        guest.file.write_all(format!("{block} 8\n").as_bytes()).unwrap();
        assert_eq!(holder.news(), [((None, block), 8)]);
        // The next holder begins anew, and who had joined goes on.
        let mut next = Journal::begin(folder.path()).unwrap();
        guest.tell(&(None, block), 5).unwrap();
        assert_eq!(next.news(), [((None, block), 5)]);
    }
}
