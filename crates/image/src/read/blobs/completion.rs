//! Writes all raw bytes of a blob to a file, so that an image can be mounted without a server.
//!
//! Invariant: a file under its final name contains every byte, each verified, because it is renamed
//! to that name when it is complete. Blocks of zeros are holes.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::{BlobReader, raw_files};
use crate::{Error, Result};

/// The raw bytes per step.
const CHUNK_BYTES: u64 = 4 << 20;

impl BlobReader {
    /// Fetches missing blocks and writes all raw bytes to a file in `folder`, named by the Merkle
    /// root; a blob that two images share is stored once. A failure leaves no file.
    pub async fn complete(&self, folder: &Path) -> Result<PathBuf> {
        let path = raw_files::path_in(folder, self.summary());
        if path.is_file() {
            return Ok(path);
        }
        fs::create_dir_all(folder).map_err(Error::io("make the folder", folder))?;
        let file =
            tempfile::NamedTempFile::new_in(folder).map_err(Error::io("write in", folder))?;
        self.fill(file.as_file(), &path).await?;
        raw_files::seal(file.as_file()).map_err(Error::io("close", &path))?;
        file.as_file().sync_all().map_err(Error::io("flush", &path))?;
        file.persist(&path).map_err(|failed| Error::io("write", &path)(failed.error))?;
        Ok(path)
    }

    async fn fill(&self, file: &File, path: &Path) -> Result<()> {
        file.set_len(self.raw_size()).map_err(Error::io("write", path))?;
        let mut at = 0;
        while at < self.raw_size() {
            let bytes = self.read_unrecorded(at..at + CHUNK_BYTES).await?;
            if bytes.iter().any(|byte| *byte != 0) {
                file.write_all_at(&bytes, at).map_err(Error::io("write", path))?;
            }
            at += CHUNK_BYTES;
        }
        Ok(())
    }
}
