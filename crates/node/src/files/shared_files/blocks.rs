//! Files in the form in which other hosts read them: blobs of blocks, each block compressed and
//! digested by itself, as the blobs of images are.
//!
//! Invariant: a blob under the name of its digest is whole, because it got there by a rename. A
//! summary is written after its blob.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use snowmelt_image::block::{BlobSummary, BlobWriter, BlockSize, OciDigest};

use crate::Result;
use crate::files::code::state;
use crate::files::function_files::{entries, is_older};

/// The number of bytes that are read of a file at once.
const PIECE: usize = 256 << 10;

/// The blobs that this host has made of files.
#[derive(Clone, Debug)]
pub(super) struct BlockFiles {
    /// The folder of the blobs: `blobs/sha256/DIGEST` is a blob, and `summaries/SHA256` the summary
    /// of the blob of the file with that SHA-256.
    folder: PathBuf,
}

impl BlockFiles {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Returns the folder in which a source for layouts finds the blobs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the summary of the blob of a file with this SHA-256, which is made at its first use.
    /// Reads and writes files.
    pub fn make(&self, file: File, digest: &str) -> Result<BlobSummary> {
        let path = self.summaries().join(digest);
        if let Some(known) = self.known(&path) {
            return Ok(known);
        }
        let blobs = self.blobs();
        for folder in [&blobs, &self.summaries()] {
            std::fs::create_dir_all(folder).map_err(state(folder))?;
        }
        let out = tempfile::NamedTempFile::new_in(&blobs).map_err(state(&blobs))?;
        let mut writer = BlobWriter::new(out, &blobs, BlockSize::default());
        let mut file = io::BufReader::with_capacity(PIECE, file);
        io::copy(&mut file.by_ref(), &mut writer).map_err(state(&blobs))?;
        let (summary, out) = writer.finish()?;
        out.as_file().sync_all().map_err(state(&blobs))?;
        out.persist(self.blob(&summary.digest)).map_err(|error| state(&blobs)(error.error))?;
        let mut said = tempfile::NamedTempFile::new_in(self.summaries()).map_err(state(&path))?;
        let text = serde_json::to_vec(&summary).map_err(io::Error::from);
        text.and_then(|text| said.write_all(&text)).map_err(state(&path))?;
        said.persist(&path).map_err(|error| state(&path)(error.error))?;
        Ok(summary)
    }

    /// Removes the blobs and summaries that were not used for the time `unused`.
    pub fn sweep(&self, unused: Duration) -> Result<()> {
        for folder in [self.summaries(), self.blobs()] {
            for entry in entries(&folder)? {
                if entry.metadata().is_ok_and(|found| is_older(&found, unused)) {
                    std::fs::remove_file(entry.path()).map_err(state(&folder))?;
                }
            }
        }
        Ok(())
    }

    /// Returns the summary of a blob that was made before, and notes that it is used now; `None` if
    /// there is none or it is not whole.
    fn known(&self, path: &Path) -> Option<BlobSummary> {
        let summary: BlobSummary = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        let blob = self.blob(&summary.digest);
        let is_whole = blob.metadata().is_ok_and(|found| found.len() == summary.size);
        let used =
            |path: &Path| File::options().write(true).open(path)?.set_modified(SystemTime::now());
        (is_whole && used(&blob).is_ok() && used(path).is_ok()).then_some(summary)
    }

    fn blobs(&self) -> PathBuf {
        self.folder.join("blobs/sha256")
    }

    fn blob(&self, digest: &OciDigest) -> PathBuf {
        self.blobs().join(digest.hex())
    }

    fn summaries(&self) -> PathBuf {
        self.folder.join("summaries")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, text).unwrap();
        io::Seek::rewind(&mut file).unwrap();
        file
    }

    fn count(folder: &Path) -> usize {
        std::fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn a_blob_is_made_once_and_again_when_it_is_damaged_or_gone() {
        let folder = tempfile::tempdir().unwrap();
        let made = BlockFiles::new(folder.path().join("blocks"));
        made.sweep(Duration::ZERO).unwrap();
        let summary = made.make(file(&[7; 3 << 20]), "abc").unwrap();
        assert_eq!(summary.raw_size, 3 << 20);
        // The file is not read: it is known.
        assert_eq!(made.make(file(b""), "abc").unwrap(), summary);
        std::fs::write(made.blob(&summary.digest), b"short").unwrap();
        assert_eq!(made.make(file(&[7; 3 << 20]), "abc").unwrap(), summary);
        std::fs::write(made.summaries().join("abc"), b"{").unwrap();
        assert_eq!(made.make(file(&[7; 3 << 20]), "abc").unwrap(), summary);
        made.sweep(Duration::from_secs(3600)).unwrap();
        assert_eq!((count(&made.blobs()), count(&made.summaries())), (1, 1));
        made.sweep(Duration::ZERO).unwrap();
        assert_eq!((count(&made.blobs()), count(&made.summaries())), (0, 0));
    }
}
