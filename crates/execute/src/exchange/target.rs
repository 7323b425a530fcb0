//! Targets to which a task writes its output: an open file, objects, or streams to other tasks.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::Error;

/// Frames of a partition that are written together.
pub(crate) struct OutputPiece {
    pub(crate) partition: u32,
    pub(crate) frames: Vec<u8>,
}

/// The place at which a piece was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PiecePlace {
    /// The number of the piece's object; `None` in a file.
    pub(crate) object: Option<u32>,
    pub(crate) offset: u64,
}

/// A medium for the output of one task.
pub(crate) trait OutputTarget: Send + Sync {
    /// True if a full buffer is to be written as a whole, because each write is a request.
    fn writes_all(&self) -> bool;

    /// False once nobody reads the output: then the task may end.
    fn is_wanted(&self) -> bool {
        true
    }

    /// Begins to write the pieces, which are in the order of their partitions. Does not block for
    /// long. Returns a place for each piece.
    fn write(&self, pieces: Vec<OutputPiece>) -> Result<Vec<PiecePlace>, Error>;

    /// Waits until few bytes are on their way, or no bytes if the output is to be `complete`.
    fn settle(&self, complete: bool) -> BoxFuture<'_, Result<(), Error>>;
}

/// A granted file, which is empty at first.
pub(crate) struct FileTarget {
    file: File,
    end: AtomicU64,
}

impl FileTarget {
    pub(crate) fn new(file: File) -> Self {
        Self { file, end: AtomicU64::new(0) }
    }
}

impl OutputTarget for FileTarget {
    fn writes_all(&self) -> bool {
        false
    }

    fn write(&self, pieces: Vec<OutputPiece>) -> Result<Vec<PiecePlace>, Error> {
        let write = |OutputPiece { frames, .. }: OutputPiece| {
            let offset = self.end.fetch_add(frames.len() as u64, Ordering::Relaxed);
            self.file.write_all_at(&frames, offset).map_err(Error::Exchange)?;
            Ok(PiecePlace { object: None, offset })
        };
        pieces.into_iter().map(write).collect()
    }

    fn settle(&self, _: bool) -> BoxFuture<'_, Result<(), Error>> {
        std::future::ready(Ok(())).boxed()
    }
}
