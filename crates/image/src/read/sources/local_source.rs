//! Blobs in an OCI layout folder on the local disk.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use bytes::Bytes;

use super::BlockSource;
use crate::block::OciDigest;
use crate::{Error, Result};

/// Reads blobs from `blobs/sha256` of a layout.
#[derive(Clone, Debug)]
pub struct LocalSource {
    folder: PathBuf,
}

impl LocalSource {
    /// Makes a source of the blobs in `layout`, an OCI layout folder.
    pub fn new(layout: &Path) -> Self {
        Self { folder: layout.join("blobs/sha256") }
    }
}

#[async_trait]
impl BlockSource for LocalSource {
    async fn fetch(&self, blob: &OciDigest, range: Range<u64>) -> Result<Bytes> {
        let path = self.folder.join(blob.hex());
        let name = blob.clone();
        let read = tokio::task::spawn_blocking(move || read(&path, &name, range));
        read.await.map_err(|error| Error::unreachable("a block", error.to_string()))?
    }
}

fn read(path: &Path, name: &OciDigest, range: Range<u64>) -> Result<Bytes> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Error::missing(format!("the blob {name}")));
        }
        opened => opened.map_err(Error::io("open", path))?,
    };
    let size = file.metadata().map_err(Error::io("read", path))?.len();
    if range.start > range.end || range.end > size {
        return Err(outside(name, &range));
    }
    let mut bytes = vec![0; (range.end - range.start) as usize];
    file.read_exact_at(&mut bytes, range.start).map_err(Error::io("read", path))?;
    Ok(bytes.into())
}

/// Returns the error for a range that is not inside the blob.
pub(crate) fn outside(blob: &OciDigest, range: &Range<u64>) -> Error {
    Error::refused(format!("the blob {blob}"), format!("it has no bytes {range:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::sources::conformance;

    #[tokio::test]
    async fn conforms() {
        let layout = tempfile::tempdir().unwrap();
        let folder = layout.path().join("blobs/sha256");
        std::fs::create_dir_all(&folder).unwrap();
        let content = conformance::content();
        std::fs::write(folder.join(OciDigest::of(&content).hex()), &content).unwrap();
        conformance::check(&LocalSource::new(layout.path()), &content).await;
    }
}
