//! The output of a sandbox on stdout and stderr, bounded.
//!
//! The pipe is always read, or a function that prints much would block; output beyond the bound is
//! counted and dropped, or a function that prints gigabytes would fill the memory.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snowmelt_types::ByteSize;
use tokio::net::unix::pipe;
use tokio::task::AbortHandle;

use crate::Secrets;

/// The most output that is kept of a query worker or of imports. Functions have limits of their
/// own.
pub(crate) const PLATFORM_LOG: ByteSize = ByteSize::mib(1);

/// The output of a sandbox since the last read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogText {
    /// The first bytes of the output, as many as are kept, as text.
    pub text: String,
    /// The number of bytes after the kept ones, which were dropped.
    pub dropped_bytes: u64,
}

impl LogText {
    /// Returns the last `count` lines, for an error.
    pub fn last_lines(&self, count: usize) -> Vec<String> {
        let lines: Vec<&str> = self.text.lines().collect();
        let from = lines.len().saturating_sub(count);
        lines[from..].iter().map(|line| (*line).to_owned()).collect()
    }
}

/// Reads the output of one sandbox for as long as the collector lives.
#[derive(Debug)]
pub(crate) struct LogCollector {
    shared: Arc<LogPipe>,
    reader: AbortHandle,
    hidden: Secrets,
}

#[derive(Debug)]
struct LogPipe {
    pipe: pipe::Receiver,
    // The most bytes that are kept between two reads.
    most: usize,
    // The lock is held while bytes are moved out of the pipe, so that `take` sees all that was
    // written before.
    kept: Mutex<LogBuffer>,
}

#[derive(Debug, Default)]
struct LogBuffer {
    bytes: Vec<u8>,
    dropped: u64,
}

impl LogCollector {
    /// Begins to read; keeps at most `most` bytes between two reads by the caller.
    pub fn new(read_end: OwnedFd, most: ByteSize) -> std::io::Result<Self> {
        let pipe = pipe::Receiver::from_owned_fd(read_end)?;
        let most = usize::try_from(most.bytes()).unwrap_or(usize::MAX);
        let shared = Arc::new(LogPipe { pipe, most, kept: Mutex::default() });
        let reader = tokio::spawn(read_all(Arc::clone(&shared))).abort_handle();
        Ok(Self { shared, reader, hidden: Secrets::default() })
    }

    /// Hides the values of these secrets in all output that is taken from now on.
    pub fn hide(&mut self, secrets: Secrets) {
        self.hidden = secrets;
    }

    /// Returns the output since the last call, including all bytes that are in the pipe now.
    pub fn take(&self) -> LogText {
        let mut kept = self.shared.lock();
        // Not `try_read`, which reads nothing until the runtime has seen that the pipe is readable.
        let read = |buffer: &mut [u8]| rustix::io::read(&self.shared.pipe, buffer);
        drain(&mut kept, self.shared.most, |buffer| Ok(read(buffer)?));
        let kept = std::mem::take(&mut *kept);
        let text = String::from_utf8_lossy(&kept.bytes).into_owned();
        let text = self.hidden.hidden(text, kept.dropped > 0);
        LogText { text, dropped_bytes: kept.dropped }
    }
}

impl Drop for LogCollector {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl LogPipe {
    fn lock(&self) -> MutexGuard<'_, LogBuffer> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn read_all(shared: Arc<LogPipe>) {
    while shared.pipe.readable().await.is_ok() {
        let read = |buffer: &mut [u8]| shared.pipe.try_read(buffer);
        if drain(&mut shared.lock(), shared.most, read) == Drained::Ended {
            return;
        }
        // A function that writes without pause must not keep this thread to itself.
        tokio::task::yield_now().await;
    }
}

#[derive(PartialEq, Eq)]
enum Drained {
    ForNow,
    Ended,
}

/// Moves at most a few pipefuls, so that one writer cannot hold the lock for ever.
fn drain(
    kept: &mut LogBuffer,
    most: usize,
    mut read: impl FnMut(&mut [u8]) -> std::io::Result<usize>,
) -> Drained {
    let mut buffer = [0; 64 << 10];
    for _ in 0..32 {
        match read(&mut buffer) {
            Ok(0) => return Drained::Ended,
            Ok(read) => kept.add(&buffer[..read], most),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Drained::ForNow,
            Err(_) => return Drained::Ended,
        }
    }
    Drained::ForNow
}

impl LogBuffer {
    fn add(&mut self, read: &[u8], most: usize) {
        let room = most.saturating_sub(self.bytes.len());
        let (kept, dropped) = read.split_at(room.min(read.len()));
        self.bytes.extend_from_slice(kept);
        self.dropped += dropped.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Checks that the bytes in the pipe are taken before the runtime, which has one thread here,
    /// has looked at the pipe.
    #[tokio::test]
    async fn what_was_written_just_now_is_taken() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let log = LogCollector::new(reader.into(), ByteSize::mib(1)).unwrap();
        writer.write_all(b"called\n").unwrap();
        assert_eq!(log.take().text, "called\n");
    }

    #[tokio::test]
    async fn keeps_the_beginning_and_counts_the_rest() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let log = LogCollector::new(reader.into(), ByteSize::mib(1)).unwrap();
        let sender = tokio::task::spawn_blocking(move || {
            writer.write_all(b"first\n").unwrap();
            writer.write_all(&vec![b'x'; 3 << 20]).unwrap();
        });
        sender.await.unwrap();
        let text = log.take();
        assert!(text.text.starts_with("first\nxxx"));
        assert_eq!(text.text.len() as u64 + text.dropped_bytes, (3 << 20) + 6);
        assert_eq!(text.text.len(), 1 << 20);
        assert_eq!(log.take(), LogText::default());
    }
}
