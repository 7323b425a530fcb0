//! A flat folder with a file for each blob, for the kernel's EROFS alone to read.

use std::sync::Arc;

use rustix::io::Errno;

use super::failures::Failures;
use super::protocol::{self, Ask, ROOT};
use super::server::{Answer, Serve};
use crate::read::BlobReader;

/// A file of the mount: its name is its number from 0.
pub(super) fn name(index: usize) -> String {
    index.to_string()
}

/// The files by their numbers.
pub(super) struct Blobs {
    pub files: Vec<Arc<BlobReader>>,
    pub failures: Arc<Failures>,
}

impl Serve for Blobs {
    fn at_once(&self, ask: &Ask) -> Option<Answer> {
        Some(match ask {
            // Read-ahead would fetch blocks that nobody asked for; EROFS reads ahead by itself.
            Ask::Init { flags } => Ok(protocol::init(*flags, 0, 0)),
            Ask::Lookup { folder, name } => self.lookup(*folder, name),
            Ask::GetAttributes { node } => {
                let size = self.size(*node).ok_or(Errno::NOENT);
                size.map(|size| protocol::attributes(*node, size))
            }
            Ask::Open => Ok(protocol::opened()),
            // Names are not listed.
            Ask::Nothing | Ask::Flush | Ask::List { .. } => Ok(Vec::new()),
            Ask::Read { .. } => return None,
            _ => Err(Errno::NOSYS),
        })
    }

    async fn in_time(&self, ask: Ask) -> Answer {
        match ask {
            Ask::Read { node, offset, size } => self.read(node, offset, size).await,
            _ => Err(Errno::NOSYS),
        }
    }
}

impl Blobs {
    async fn read(&self, node: u64, offset: u64, size: u32) -> Answer {
        let file = self.file(node).ok_or(Errno::NOENT)?;
        let end = offset.saturating_add(u64::from(size));
        file.read(offset..end).await.map_err(|error| {
            tracing::error!(%error, node, offset, "a read from an image fails");
            self.failures.keep(error);
            Errno::IO
        })
    }

    fn lookup(&self, folder: u64, wanted: &[u8]) -> Answer {
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
