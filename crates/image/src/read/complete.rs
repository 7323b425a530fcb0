//! All raw bytes of a blob as a file, once somebody wants to mount without anything in between.
//!
//! Invariant: a file under its final name holds every byte, each verified; it is renamed there.
//! Blocks of zeros are holes.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::{BlobReader, raw};
use crate::{Error, Result};

/// Raw bytes that are read at once.
const AT_ONCE: u64 = 4 << 20;

impl BlobReader {
    /// Fetches what is missing and writes all raw bytes to `folder`, named by the Merkle root; a
    /// blob that two images share is there once. Nothing is left if it fails.
    pub async fn complete(&self, folder: &Path) -> Result<PathBuf> {
        let path = raw::path_in(folder, self.summary());
        if path.is_file() {
            return Ok(path);
        }
        fs::create_dir_all(folder).map_err(Error::io("make the folder", folder))?;
        let file =
            tempfile::NamedTempFile::new_in(folder).map_err(Error::io("write in", folder))?;
        self.fill(file.as_file(), &path).await?;
        raw::seal(file.as_file()).map_err(Error::io("close", &path))?;
        file.as_file().sync_all().map_err(Error::io("flush", &path))?;
        file.persist(&path).map_err(|failed| Error::io("write", &path)(failed.error))?;
        Ok(path)
    }

    async fn fill(&self, file: &File, path: &Path) -> Result<()> {
        file.set_len(self.raw_size()).map_err(Error::io("write", path))?;
        let mut at = 0;
        while at < self.raw_size() {
            let bytes = self.read_quietly(at..at + AT_ONCE).await?;
            if bytes.iter().any(|byte| *byte != 0) {
                file.write_all_at(&bytes, at).map_err(Error::io("write", path))?;
            }
            at += AT_ONCE;
        }
        Ok(())
    }
}
