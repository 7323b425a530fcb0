//! The files of an image whose metadata part is in memory, asked without a kernel: for fuzzing, and
//! for tests of what no honest image brings about.
//!
//! Invariant: a request takes the way that it takes in a mount, from its bytes to those of the reply.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::FutureExt;

use super::protocol::{Ask, Request};
use super::server::Serve;
use super::tree::Tree;
use crate::Result;
use crate::erofs::Bytes;

/// What a mount without EROFS shows, mounted nowhere.
pub struct Unmounted {
    tree: Tree<Part>,
    reads: Arc<AtomicU64>,
}

impl Unmounted {
    /// Layers are zeros, of these sizes.
    pub fn new(metadata: &[u8], layers: &[u64]) -> Self {
        let reads: Arc<AtomicU64> = Arc::default();
        let part = |bytes, size| Part { bytes, size, reads: Arc::clone(&reads) };
        let layers = layers.iter().map(|size| part(Vec::new(), *size)).collect();
        let tree =
            Tree::new(part(metadata.to_vec(), metadata.len() as u64), layers, Arc::default());
        Self { tree, reads }
    }

    /// The reply to a request, without its header, or an errno. `None` if the bytes are no request or
    /// one that gets no reply.
    pub fn ask(&self, request: &[u8]) -> Option<Result<Vec<u8>, i32>> {
        let ask = Request::parse(request)?.ask;
        if ask == Ask::Silent {
            return None;
        }
        // Memory makes nobody wait.
        let answer = match self.tree.at_once(&ask) {
            Some(answer) => answer,
            None => self.tree.in_time(ask).now_or_never()?,
        };
        Some(answer.map_err(|errno| errno.raw_os_error()))
    }

    /// How often bytes of the image were read so far.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }
}

/// Some bytes, and zeros up to its size.
struct Part {
    bytes: Vec<u8>,
    size: u64,
    reads: Arc<AtomicU64>,
}

impl Bytes for Part {
    fn size(&self) -> u64 {
        self.size
    }

    async fn read(&self, range: Range<u64>) -> Result<Vec<u8>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let end = range.end.min(self.size);
        let start = range.start.min(end);
        let there = |at: u64| at.min(self.bytes.len() as u64) as usize;
        let mut bytes = self.bytes[there(start)..there(end)].to_vec();
        bytes.resize((end - start) as usize, 0);
        Ok(bytes)
    }
}
