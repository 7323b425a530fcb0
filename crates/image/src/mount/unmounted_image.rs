//! Serves the files of an image whose metadata part is in memory without a kernel: for fuzzing, and
//! for tests of malicious images.
//!
//! Invariant: a request is handled by the same code as in a mount, from its bytes to those of the
//! reply.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::FutureExt;

use super::protocol::{FuseOperation, FuseRequest};
use super::server::Serve;
use super::tree::MountTree;
use crate::Result;
use crate::filesystem::erofs::Bytes;

/// The files of an image as FUSE serves them, without a mount.
pub struct Unmounted {
    tree: MountTree<PaddedBytes>,
    reads: Arc<AtomicU64>,
}

impl Unmounted {
    /// Creates layers of zeros with these sizes.
    pub fn new(metadata: &[u8], layers: &[u64]) -> Self {
        let reads: Arc<AtomicU64> = Arc::default();
        let part = |bytes, size| PaddedBytes { bytes, size, reads: Arc::clone(&reads) };
        let layers = layers.iter().map(|size| part(Vec::new(), *size)).collect();
        let tree =
            MountTree::new(part(metadata.to_vec(), metadata.len() as u64), layers, Arc::default());
        Self { tree, reads }
    }

    /// Answers a request: the body of the reply, or an errno. `None` if the bytes are not a
    /// request, or the request has no reply.
    pub fn request(&self, request: &[u8]) -> Option<Result<Vec<u8>, i32>> {
        let operation = FuseRequest::parse(request)?.operation;
        if operation == FuseOperation::NoReply {
            return None;
        }
        // Memory never blocks.
        let answer = match self.tree.answer_now(&operation) {
            Some(answer) => answer,
            None => self.tree.answer_async(operation).now_or_never()?,
        };
        Some(answer.map_err(|errno| errno.raw_os_error()))
    }

    /// Returns the number of reads of the image's bytes so far.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }
}

/// Bytes, padded with zeros to `size`.
struct PaddedBytes {
    bytes: Vec<u8>,
    size: u64,
    reads: Arc<AtomicU64>,
}

impl Bytes for PaddedBytes {
    fn size(&self) -> u64 {
        self.size
    }

    async fn read(&self, range: Range<u64>) -> Result<Vec<u8>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let end = range.end.min(self.size);
        let start = range.start.min(end);
        let clamp = |at: u64| at.min(self.bytes.len() as u64) as usize;
        let mut bytes = self.bytes[clamp(start)..clamp(end)].to_vec();
        bytes.resize((end - start) as usize, 0);
        Ok(bytes)
    }
}
