//! Blocking work on images, with progress updates and cancellation.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use snowmelt_image::source::{ConversionSource, Described};
use snowmelt_image::{Error, Result};
use snowmelt_types::ByteSize;

use crate::terminal::ProgressDisplay;

/// The limit on the wait for cancelled work. The next command removes any files that it leaves.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// The number of bytes between two progress updates.
const REPORT_EVERY: u64 = 1 << 20;

/// The progress display and the cancellation flag of blocking work.
#[derive(Clone)]
pub(super) struct ProgressWatch {
    progress: Arc<ProgressDisplay>,
    stopped: Arc<AtomicBool>,
    reported: Arc<AtomicU64>,
}

impl ProgressWatch {
    /// Reports the bytes read so far. Returns an error if the work was cancelled.
    pub fn read(&self, what: &str, bytes: u64) -> io::Result<()> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(io::Error::other("it was cancelled"));
        }
        if bytes.abs_diff(self.reported.load(Ordering::Relaxed)) >= REPORT_EVERY {
            self.reported.store(bytes, Ordering::Relaxed);
            self.progress.set_label(format!("{what} · {} read", ByteSize(bytes)));
        }
        Ok(())
    }
}

/// Runs work on a thread that may block. Dropping the future cancels the work and waits until its
/// partial files are removed.
pub(super) async fn blocking<T: Send + 'static>(
    progress: &Arc<ProgressDisplay>,
    work: impl FnOnce(ProgressWatch) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (done, ended) = channel::<()>();
    let stopped = Arc::new(AtomicBool::new(false));
    let watch = ProgressWatch {
        progress: Arc::clone(progress),
        stopped: Arc::clone(&stopped),
        reported: Arc::new(AtomicU64::new(u64::MAX / 2)),
    };
    let _stopping = Stopping { stopped, ended };
    let worked = tokio::task::spawn_blocking(move || {
        // Dropped after everything that the work owns.
        let _done = done;
        work(watch)
    });
    worked.await.unwrap_or_else(|error| {
        Err(Error::Refused { what: "the image".to_owned(), reason: error.to_string() })
    })
}

struct Stopping {
    stopped: Arc<AtomicBool>,
    ended: Receiver<()>,
}

impl Drop for Stopping {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        // Nothing is ever sent: the other end is dropped.
        let _ = self.ended.recv_timeout(END_TIMEOUT);
    }
}

/// An origin whose readers report progress and can be cancelled.
pub(super) struct WatchedOrigin {
    inner: Arc<dyn ConversionSource + Send + Sync>,
    watch: ProgressWatch,
    bytes: AtomicU64,
}

impl WatchedOrigin {
    pub fn new(inner: Arc<dyn ConversionSource + Send + Sync>, watch: ProgressWatch) -> Self {
        Self { inner, watch, bytes: AtomicU64::new(0) }
    }
}

impl ConversionSource for WatchedOrigin {
    fn describe(&self) -> Result<Described> {
        self.inner.describe()
    }

    fn layer(&self, index: usize) -> Result<Box<dyn Read + '_>> {
        let inner = self.inner.layer(index)?;
        let name = format!("layer {}", index + 1);
        Ok(Box::new(WatchedLayer { inner, name, origin: self }))
    }
}

struct WatchedLayer<'a> {
    inner: Box<dyn Read + 'a>,
    name: String,
    origin: &'a WatchedOrigin,
}

impl Read for WatchedLayer<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)? as u64;
        let all = self.origin.bytes.fetch_add(count, Ordering::Relaxed) + count;
        self.origin.watch.read(&self.name, all)?;
        Ok(count as usize)
    }
}
