//! A flat folder with one file per blob, read only by the kernel's EROFS.

use std::sync::Arc;

use rustix::io::Errno;

use super::failures::MountFailures;
use super::protocol::{self, FuseOperation, ROOT};
use super::server::{FuseAnswer, Serve};
use crate::read::BlobReader;

/// Returns the name of a file of the mount: its index, from 0.
pub(super) fn name(index: usize) -> String {
    index.to_string()
}

/// The files of the mount, by their indexes.
pub(super) struct Blobs {
    pub files: Vec<Arc<BlobReader>>,
    pub failures: Arc<MountFailures>,
}

impl Serve for Blobs {
    fn answer_now(&self, operation: &FuseOperation) -> Option<FuseAnswer> {
        Some(match operation {
            // No FUSE read-ahead, which would fetch blocks that are not needed; EROFS has its own
            // read-ahead.
            FuseOperation::Init { flags } => Ok(protocol::init(*flags, 0, 0)),
            FuseOperation::Lookup { folder, name } => self.lookup(*folder, name),
            FuseOperation::GetAttributes { node } => {
                let size = self.size(*node).ok_or(Errno::NOENT);
                size.map(|size| protocol::attributes(*node, size))
            }
            FuseOperation::Open => Ok(protocol::opened()),
            // Listing is not needed.
            FuseOperation::Ignored | FuseOperation::Flush | FuseOperation::List { .. } => {
                Ok(Vec::new())
            }
            FuseOperation::Read { .. } => return None,
            _ => Err(Errno::NOSYS),
        })
    }

    async fn answer_async(&self, operation: FuseOperation) -> FuseAnswer {
        match operation {
            FuseOperation::Read { node, offset, size } => self.read(node, offset, size).await,
            _ => Err(Errno::NOSYS),
        }
    }
}

impl Blobs {
    async fn read(&self, node: u64, offset: u64, size: u32) -> FuseAnswer {
        let file = self.file(node).ok_or(Errno::NOENT)?;
        let end = offset.saturating_add(u64::from(size));
        file.read(offset..end).await.map_err(|error| {
            tracing::error!(%error, node, offset, "a read from an image fails");
            self.failures.keep(error);
            Errno::IO
        })
    }

    fn lookup(&self, folder: u64, wanted: &[u8]) -> FuseAnswer {
        let index = (0..self.files.len()).find(|index| name(*index).as_bytes() == wanted);
        match index.filter(|_| folder == ROOT) {
            Some(index) => {
                let node = ROOT + 1 + index as u64;
                Ok(protocol::found(node, self.files[index].raw_size()))
            }
            None => Err(Errno::NOENT),
        }
    }

    fn size(&self, node: u64) -> Option<u64> {
        if node == ROOT { Some(0) } else { self.file(node).map(|file| file.raw_size()) }
    }

    fn file(&self, node: u64) -> Option<&Arc<BlobReader>> {
        self.files.get(usize::try_from(node.checked_sub(ROOT + 1)?).ok()?)
    }
}
