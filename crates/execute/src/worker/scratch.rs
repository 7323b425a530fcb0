//! The scratch of a task: where its operators put rows that do not fit into memory.
//!
//! The scratch is one granted file without a name, in which each spill file is a list of chunks.
//! The chunks of a spill file that is not needed any more are used again, so the file grows to the
//! most that is spilled at one time. It is gone with the last descriptor, which this task has.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::spill_file::{SpillFile, SpillWriter, TempFileFactory};
use futures::{Stream, StreamExt, stream};
use snowmelt_types::Report;

use crate::Error;

/// Bytes of a chunk.
const CHUNK_BYTES: u64 = 1 << 20;

/// Bytes that are read at a time.
const READ_BYTES: u64 = 256 << 10;

/// A granted file.
#[derive(Clone, Debug)]
pub struct Scratch(Arc<ScratchFile>);

#[derive(Debug)]
struct ScratchFile {
    file: File,
    space: Mutex<Space>,
    written: AtomicU64,
}

/// The chunks of the file.
#[derive(Debug, Default)]
struct Space {
    /// Offset of the next new chunk.
    end: u64,
    free: Vec<u64>,
}

impl Scratch {
    /// A scratch in an empty file.
    pub(crate) fn new(file: File) -> Self {
        let space = Mutex::default();
        let written = AtomicU64::new(0);
        Self(Arc::new(ScratchFile { file, space, written }))
    }

    /// Returns the number of bytes that were written.
    pub(crate) fn written(&self) -> u64 {
        self.0.written.load(Ordering::Relaxed)
    }
}

impl TempFileFactory for Scratch {
    fn create_temp_file(&self, _: &str) -> Result<Arc<dyn SpillFile>> {
        let scratch = Arc::clone(&self.0);
        Ok(Arc::new(Spilled(Arc::new(Chunks { scratch, state: Mutex::default() }))))
    }
}

impl ScratchFile {
    fn take_chunk(&self) -> u64 {
        let mut space = self.space.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(free) = space.free.pop() {
            return free;
        }
        let chunk = space.end;
        space.end += CHUNK_BYTES;
        chunk
    }
}

/// A spill file. Its chunks are free when nobody reads or writes it any more.
struct Spilled(Arc<Chunks>);

struct Chunks {
    scratch: Arc<ScratchFile>,
    state: Mutex<State>,
}

#[derive(Clone, Default)]
struct State {
    chunks: Vec<u64>,
    bytes: u64,
}

impl Chunks {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends what fits into the last chunk, or begins another one.
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.state();
        let within = state.bytes % CHUNK_BYTES;
        if within == 0 {
            let chunk = self.scratch.take_chunk();
            state.chunks.push(chunk);
        }
        let room = usize::try_from(CHUNK_BYTES - within).unwrap_or(usize::MAX);
        let part = &bytes[..bytes.len().min(room)];
        let chunk = state.chunks.last().copied().unwrap_or_default();
        self.scratch.file.write_all_at(part, chunk + within)?;
        state.bytes += part.len() as u64;
        self.scratch.written.fetch_add(part.len() as u64, Ordering::Relaxed);
        Ok(part.len())
    }

    /// The bytes from an offset on, as many as are read at a time; none at the end.
    fn read(&self, offset: u64) -> Result<Bytes> {
        let (chunk, length) = {
            let state = self.state();
            let left = state.bytes.saturating_sub(offset);
            let within = offset % CHUNK_BYTES;
            let length = left.min(READ_BYTES).min(CHUNK_BYTES - within);
            (state.chunks.get((offset / CHUNK_BYTES) as usize).copied(), length)
        };
        let Some(chunk) = chunk else { return Ok(Bytes::new()) };
        let mut buffer = vec![0; length as usize];
        let read = self.scratch.file.read_exact_at(&mut buffer, chunk + offset % CHUNK_BYTES);
        read.map_err(failed)?;
        Ok(buffer.into())
    }
}

impl Drop for Chunks {
    fn drop(&mut self) {
        let chunks = std::mem::take(&mut self.state().chunks);
        let mut space = self.scratch.space.lock().unwrap_or_else(PoisonError::into_inner);
        space.free.extend(chunks);
    }
}

fn failed(error: io::Error) -> DataFusionError {
    DataFusionError::External(Box::new(Error::Scratch(error).report()))
}

impl SpillFile for Spilled {
    fn size(&self) -> Option<u64> {
        Some(self.0.state().bytes)
    }

    fn read_stream(&self) -> Result<Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>> {
        let from = (Arc::clone(&self.0), 0);
        let read = |(chunks, offset): (Arc<Chunks>, u64)| async move {
            let bytes = chunks.read(offset)?;
            let next = offset + bytes.len() as u64;
            Ok((!bytes.is_empty()).then_some((bytes, (chunks, next))))
        };
        Ok(stream::try_unfold(from, read).boxed())
    }

    fn open_writer(&self) -> Result<Box<dyn SpillWriter>> {
        Ok(Box::new(ChunkWriter(Arc::clone(&self.0))))
    }
}

struct ChunkWriter(Arc<Chunks>);

impl Write for ChunkWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match bytes.is_empty() {
            true => Ok(0),
            // The report passes through writers that know only errors of input and output.
            false => self.0.append(bytes).map_err(|error| io::Error::other(failed(error))),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SpillWriter for ChunkWriter {
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;

    use super::*;

    async fn content(file: &Arc<dyn SpillFile>) -> Vec<u8> {
        let pieces: Vec<Bytes> = file.read_stream().unwrap().try_collect().await.unwrap();
        pieces.concat()
    }

    fn spill(scratch: &Scratch, byte: u8, length: usize) -> Arc<dyn SpillFile> {
        let file = scratch.create_temp_file("test").unwrap();
        let mut writer = file.open_writer().unwrap();
        writer.write_all(&vec![byte; length]).unwrap();
        writer.finish().unwrap();
        file
    }

    #[tokio::test]
    async fn spill_files_are_read_as_written_and_their_space_is_used_again() {
        let file = tempfile::tempfile().unwrap();
        let scratch = Scratch::new(file.try_clone().unwrap());
        let first = spill(&scratch, 1, 3_000_000);
        let second = spill(&scratch, 2, 10);
        assert_eq!(content(&first).await, vec![1; 3_000_000]);
        assert_eq!(content(&second).await, vec![2; 10]);
        assert_eq!((first.size(), second.size()), (Some(3_000_000), Some(10)));
        let used = scratch.0.space.lock().unwrap().end;
        let reading = first.read_stream().unwrap();
        drop(first);
        // A reader keeps what it reads.
        let third = spill(&scratch, 3, 2_000_000);
        let read: Vec<Bytes> = reading.try_collect().await.unwrap();
        assert_eq!(read.concat(), vec![1; 3_000_000]);
        assert!(scratch.0.space.lock().unwrap().end > used);
        let used = scratch.0.space.lock().unwrap().end;
        let fourth = spill(&scratch, 4, 3_000_000);
        assert_eq!(scratch.0.space.lock().unwrap().end, used);
        assert_eq!(content(&third).await, vec![3; 2_000_000]);
        assert_eq!(content(&fourth).await, vec![4; 3_000_000]);
        assert_eq!(scratch.written(), 8_000_010);
        let empty = scratch.create_temp_file("test").unwrap();
        assert!(content(&empty).await.is_empty());
    }

    #[test]
    fn a_full_disk_is_reported_as_such() {
        let read_only = File::open("/dev/null").unwrap();
        let scratch = Scratch::new(read_only);
        let file = scratch.create_temp_file("test").unwrap();
        let error = file.open_writer().unwrap().write_all(&[1]).unwrap_err();
        let error = DataFusionError::ArrowError(
            Box::new(arrow::error::ArrowError::IoError("writing failed".to_owned(), error)),
            None,
        );
        let report =
            crate::error::fault::report(&error, &crate::error::fault::FaultContext::driver());
        assert_eq!(report.code, "SM-0506", "{report}");
    }
}
