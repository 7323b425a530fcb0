//! The bytes of a file, or of the lines of a range of it.
//!
//! A line belongs to the range that has its first byte. So the lines of a range begin behind the
//! first line break at or after the byte before the range, and end with the first line break at or
//! after its last byte: ranges that follow each other have each line once.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::error::{DataFusionError, Result as DfResult};
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{GetOptions, ObjectStore};

use crate::read::dialect::quotes::position;

/// Bytes that are read at a time to find the end of a range's last line.
const STEP: u64 = 64 << 10;

/// Bytes of a file as they arrive.
pub(crate) type ByteStream = BoxStream<'static, DfResult<Bytes>>;

/// A file in a store.
#[derive(Clone, Debug)]
pub(crate) struct StoreFile {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) location: Path,
    pub(crate) size: u64,
}

impl StoreFile {
    /// The bytes of a range. All of them are requested at once.
    pub(crate) fn bytes(&self, range: Range<u64>) -> ByteStream {
        if range.is_empty() {
            return stream::empty().boxed();
        }
        let store = Arc::clone(&self.store);
        let location = self.location.clone();
        let request = async move {
            let options = GetOptions::new().with_range(Some(range));
            let got = store.get_opts(&location, options).await?;
            Ok::<_, DataFusionError>(got.into_stream().map_err(DataFusionError::from))
        };
        request.into_stream().try_flatten().boxed()
    }

    /// The lines of a range.
    pub(crate) fn lines(&self, range: Range<u64>) -> ByteStream {
        let first = range.start.saturating_sub(1);
        let phase = if range.start == 0 { LinePhase::Inside } else { LinePhase::Before };
        let source = self.bytes(first..range.end);
        let lines = LineRange { file: self.clone(), source, offset: first, end: range.end, phase };
        stream::try_unfold(lines, |mut lines| async move {
            let next = lines.next().await?;
            Ok(next.map(|bytes| (bytes, lines)))
        })
        .boxed()
    }
}

struct LineRange {
    file: StoreFile,
    source: ByteStream,
    /// Offset in the file of the next byte of the source.
    offset: u64,
    end: u64,
    phase: LinePhase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinePhase {
    /// Before the first line.
    Before,
    Inside,
    /// Inside of the last line, behind the range.
    Behind,
    Ended,
}

impl LineRange {
    async fn next(&mut self) -> DfResult<Option<Bytes>> {
        while self.phase != LinePhase::Ended {
            let Some(bytes) = self.source.try_next().await? else {
                if self.phase != LinePhase::Behind || self.offset >= self.file.size {
                    return Ok(None);
                }
                let end = self.file.size.min(self.offset + STEP);
                self.source = self.file.bytes(self.offset..end);
                continue;
            };
            let before = self.offset;
            self.offset += bytes.len() as u64;
            let taken = self.take(bytes, before);
            if !taken.is_empty() {
                return Ok(Some(taken));
            }
        }
        Ok(None)
    }

    /// The part of some bytes of the source, which begin at `offset`, that belongs to the range.
    fn take(&mut self, mut bytes: Bytes, mut offset: u64) -> Bytes {
        if self.phase == LinePhase::Before {
            // A line that begins at the end of the range does not belong to it.
            let until = index(self.end - 1, offset, bytes.len());
            match position(&bytes[..until], b'\n') {
                Some(found) => {
                    bytes = bytes.slice(found + 1..);
                    offset += found as u64 + 1;
                    self.phase = LinePhase::Inside;
                }
                None if until < bytes.len() => {
                    self.phase = LinePhase::Ended;
                    return Bytes::new();
                }
                None => return Bytes::new(),
            }
        }
        let from = index(self.end.saturating_sub(1), offset, bytes.len());
        if from == bytes.len() {
            return bytes;
        }
        match position(&bytes[from..], b'\n') {
            Some(found) => {
                self.phase = LinePhase::Ended;
                bytes.slice(..=from + found)
            }
            None => {
                self.phase = LinePhase::Behind;
                bytes
            }
        }
    }
}

/// The index of a byte of the file in some bytes that begin at `offset`, between 0 and their length.
fn index(byte: u64, offset: u64, length: usize) -> usize {
    byte.saturating_sub(offset).min(length as u64) as usize
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt;
    use object_store::chunked::ChunkedStore;
    use object_store::memory::InMemory;
    use proptest::prelude::*;

    use super::*;

    async fn read(file: &StoreFile, range: Range<u64>) -> String {
        let bytes: Vec<Bytes> = file.lines(range).try_collect().await.unwrap();
        String::from_utf8(bytes.concat()).unwrap()
    }

    async fn stored(text: &str, chunk: usize) -> StoreFile {
        let memory = InMemory::new();
        let location = Path::from("x");
        memory.put(&location, text.to_owned().into()).await.unwrap();
        let store = Arc::new(ChunkedStore::new(Arc::new(memory), chunk));
        StoreFile { store, location, size: text.len() as u64 }
    }

    proptest! {
        #[test]
        fn each_line_is_in_the_range_of_its_first_byte(
            text in "[ab\n]{1,40}",
            cuts in prop::collection::vec(0u64..40, 0..4),
            chunk in 1usize..9,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let size = text.len() as u64;
            let mut cuts: Vec<u64> = cuts.into_iter().map(|cut| cut.min(size)).collect();
            cuts.extend([0, size]);
            cuts.sort_unstable();
            cuts.dedup();
            let file = runtime.block_on(stored(&text, chunk));
            let mut all = String::new();
            for cut in cuts.windows(2) {
                let found = runtime.block_on(read(&file, cut[0]..cut[1]));
                let starts = |at: u64| at == 0 || text.as_bytes()[at as usize - 1] == b'\n';
                let first = (cut[0]..cut[1]).find(|at| starts(*at));
                prop_assert_eq!(first.is_some(), !found.is_empty());
                if let Some(first) = first {
                    prop_assert!(text[first as usize..].starts_with(&found));
                }
                all += &found;
            }
            prop_assert_eq!(all, text);
        }
    }
}
