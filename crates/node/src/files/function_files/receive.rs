//! A content of a file that arrives, in any number of pieces.

use std::fmt::Write as _;
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use sha2::{Digest, Sha256};
use snowmelt_api::MAX_FILE_BYTES;
use snowmelt_types::Tenant;

use super::budget::Arriving;
use super::{FileStore, TEMPORARY};
use crate::files::code::state;
use crate::{Error, Result};

/// A content that is being received. Dropping the value before `finish` removes what has arrived.
#[derive(Debug)]
pub struct Receiving {
    file: tempfile::NamedTempFile,
    hasher: Sha256,
    size: u64,
    arriving: Option<Arriving>,
    digest: String,
    path: PathBuf,
}

impl FileStore {
    /// Begins to receive the content with the digest `digest`.
    pub fn receive(&self, tenant: &Tenant, digest: &str) -> Result<Receiving> {
        let path = self.blob(tenant, digest)?;
        let folder = self.blobs(tenant);
        std::fs::create_dir_all(&folder).map_err(state(&folder))?;
        // Sandboxes see links to this file, whatever user they run as.
        let file = tempfile::Builder::new()
            .prefix(TEMPORARY)
            .permissions(Permissions::from_mode(0o444))
            .tempfile_in(&folder)
            .map_err(state(&folder))?;
        let arriving = self.budget.as_ref().map(|budget| budget.begin(tenant));
        let hasher = Sha256::new();
        let digest = digest.to_owned();
        Ok(Receiving { file, hasher, size: 0, arriving, digest, path })
    }
}

impl Receiving {
    /// Adds a piece at the end.
    ///
    /// # Errors
    /// `Error::FunctionFile` when the file is larger than a file may be or exceeds the budget of
    /// its tenant.
    pub fn write(&mut self, piece: &[u8]) -> Result<()> {
        self.size += piece.len() as u64;
        if self.size > MAX_FILE_BYTES {
            let most = MAX_FILE_BYTES >> 30;
            let reason = format!("a file is larger than {most} GiB, the most of a function");
            return Err(Error::FunctionFile { reason });
        }
        if let (Some(arriving), Some(folder)) = (&mut self.arriving, self.path.parent()) {
            arriving.grow(self.size, folder)?;
        }
        self.hasher.update(piece);
        self.file.write_all(piece).map_err(state(&self.path))
    }

    /// Keeps the content on the disk, unless it has another digest than announced.
    ///
    /// # Errors
    /// `Error::FunctionFile` for another digest.
    pub fn finish(self) -> Result<()> {
        let found = hexadecimal(&self.hasher.finalize());
        if found != self.digest {
            let reason = format!(
                "a file changed while it was sent: SHA-256 {} was announced, and {found} arrived",
                self.digest
            );
            return Err(Error::FunctionFile { reason });
        }
        self.file.as_file().sync_all().map_err(state(&self.path))?;
        // Who sends the same at the same time puts the same there.
        self.file.persist(&self.path).map_err(|error| state(&self.path)(error.error))?;
        Ok(())
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
pub(super) fn digest_of(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}
