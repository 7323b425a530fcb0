//! Long work on images: on a thread that may block, with events to the client.
//!
//! Invariant: work ends soon after its client has gone, and removes its partial files. It counts as
//! running until then.

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use snowmelt_api::ImageEvent;
use snowmelt_image::Error;
use snowmelt_image::source::{ConversionSource, Described};
use snowmelt_types::{ByteSize, Code, ErrorReport, Report};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio_util::sync::CancellationToken;

use super::{Images, TenantShare};

/// Events that wait for a slow client before the work waits too.
const BUFFERED_EVENTS: usize = 16;
/// Bytes between two progress events.
const REPORT_EVERY: u64 = 1 << 20;
/// Free disk space that is left to the platform by the work of other users.
const RESERVED_BYTES: u64 = 1 << 30;
/// How often the free disk space is looked at while other users write.
const DISK_CHECKED_EVERY: Duration = Duration::from_secs(1);

/// Work on an image that runs.
pub(super) struct ImageJob {
    pub events: Sender<ImageEvent>,
    pub runtime: Handle,
    /// Cancelled when the server ends.
    over: CancellationToken,
    /// The folder in which the work writes, and whether it may use all of the disk.
    folder: PathBuf,
    is_operator: bool,
    /// The share in the disk of the tenant whose image it is.
    share: Option<TenantShare>,
    /// The refusal of more of the disk, where the work cannot return it as it is.
    refused: Mutex<Option<ErrorReport>>,
    reported: AtomicU64,
    _running: OwnedSemaphorePermit,
}

/// Makes the channel for the events of work.
pub(super) fn channel() -> (Sender<ImageEvent>, Receiver<ImageEvent>) {
    mpsc::channel(BUFFERED_EVENTS)
}

impl Images {
    /// Begins work, and returns its events. Dropping them cancels the work.
    pub(super) fn begin(
        &self,
        user: Option<u32>,
        work: impl FnOnce(&Arc<ImageJob>) -> Result<ImageEvent, ErrorReport> + Send + 'static,
    ) -> Receiver<ImageEvent> {
        let (events, received) = channel();
        self.begin_with(events, user, work);
        received
    }

    /// Begins work whose events are sent to a given channel.
    pub(super) fn begin_with(
        &self,
        events: Sender<ImageEvent>,
        user: Option<u32>,
        work: impl FnOnce(&Arc<ImageJob>) -> Result<ImageEvent, ErrorReport> + Send + 'static,
    ) {
        let images = self.clone();
        tokio::spawn(async move {
            let running = tokio::select! {
                () = events.closed() => return,
                () = images.over.cancelled() => {
                    let _ = events.send(ImageEvent::Failed(server_ends())).await;
                    return;
                }
                running = images.permit(&events) => running,
            };
            let Some(running) = running else { return };
            let share = images.share();
            let job = ImageJob {
                events,
                runtime: Handle::current(),
                over: images.over,
                folder: images.state_dir,
                is_operator: user.is_none(),
                share,
                refused: Mutex::default(),
                reported: AtomicU64::new(u64::MAX / 2),
                _running: running,
            };
            tokio::task::spawn_blocking(move || {
                let job = Arc::new(job);
                let failed = |error| match job.over.is_cancelled() {
                    true => ImageEvent::Failed(server_ends()),
                    false => ImageEvent::Failed(job.refusal().unwrap_or(error)),
                };
                let last = work(&job).unwrap_or_else(failed);
                // The client may have gone.
                let _ = job.events.blocking_send(last);
            });
        });
    }

    async fn permit(&self, events: &Sender<ImageEvent>) -> Option<OwnedSemaphorePermit> {
        if self.running.available_permits() == 0 {
            let text = "waiting for other work on images".to_owned();
            let _ = events.try_send(ImageEvent::Progress(text));
        }
        // It is never closed.
        Arc::clone(&self.running).acquire_owned().await.ok()
    }
}

impl ImageJob {
    /// Waits for asynchronous work, unless the client goes away.
    pub fn wait<T, E: Report>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, ErrorReport> {
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.events.closed() => Err(cancelled()),
                () = self.over.cancelled() => Err(server_ends()),
                full = self.disk_is_full() => Err(full),
                done = work => done.map_err(|error| error.report()),
            }
        })
    }

    /// Shows the client the current step. A client that reads slowly misses some of these events.
    pub fn progress(&self, text: String) {
        let _ = self.events.try_send(ImageEvent::Progress(text));
    }

    /// Shows the client how much of which blob was transferred.
    pub fn transferred(&self, verb: &str, blob: usize, blobs: usize, bytes: u64) {
        self.progress(format!("{verb} blob {blob} of {blobs} · {}", ByteSize(bytes)));
    }

    /// Reports the bytes read so far; an error if the work must end.
    fn read(&self, what: &str, bytes: u64) -> io::Result<()> {
        if self.events.is_closed() || self.over.is_cancelled() {
            return Err(io::Error::other("it was cancelled"));
        }
        if bytes.abs_diff(self.reported.load(Ordering::Relaxed)) >= REPORT_EVERY {
            self.reported.store(bytes, Ordering::Relaxed);
            self.progress(format!("{what} · {} read", ByteSize(bytes)));
            self.check_disk().map_err(io::Error::other)?;
            self.runtime.block_on(self.check_share()).map_err(|full| {
                let said = io::Error::other(full.message.clone());
                *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(full);
                said
            })?;
        }
        Ok(())
    }

    fn refusal(&self) -> Option<ErrorReport> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Refuses more of the disk to a tenant that has its share.
    pub async fn check_share(&self) -> Result<(), ErrorReport> {
        match &self.share {
            Some(share) => share.disk.check(&share.tenant, 0).await,
            None => Ok(()),
        }
    }

    /// Waits until the work may not write any more, and returns the error.
    async fn disk_is_full(&self) -> ErrorReport {
        loop {
            if let Err(full) = self.check_disk() {
                return full.report();
            }
            if let Err(full) = self.check_share().await {
                return full;
            }
            tokio::time::sleep(DISK_CHECKED_EVERY).await;
        }
    }

    fn check_disk(&self) -> Result<(), Error> {
        if self.is_operator {
            return Ok(());
        }
        let failed = |source| {
            let path = self.folder.clone();
            Error::Io { action: "write in", path, source }
        };
        let found = rustix::fs::statvfs(&self.folder).map_err(|errno| failed(errno.into()))?;
        if found.f_bavail.saturating_mul(found.f_frsize) >= RESERVED_BYTES {
            return Ok(());
        }
        let left = ByteSize(RESERVED_BYTES);
        let reason = format!("less than {left} of disk space is left, which only root may use");
        Err(failed(io::Error::new(io::ErrorKind::StorageFull, reason)))
    }
}

/// Makes the error of work whose client has gone: nobody reads it.
fn cancelled() -> ErrorReport {
    ErrorReport::new(Code::CANCELLED, "the client has gone")
}

fn server_ends() -> ErrorReport {
    ErrorReport::new(Code::CANCELLED, "the work on the image was cancelled because the server ends")
}

/// An origin whose layers report progress and can be cancelled.
pub(super) struct JobOrigin {
    inner: Box<dyn ConversionSource + Send + Sync>,
    job: Arc<ImageJob>,
    bytes: AtomicU64,
}

impl JobOrigin {
    pub fn new(inner: Box<dyn ConversionSource + Send + Sync>, job: &Arc<ImageJob>) -> Self {
        Self { inner, job: Arc::clone(job), bytes: AtomicU64::new(0) }
    }
}

impl ConversionSource for JobOrigin {
    fn describe(&self) -> snowmelt_image::Result<Described> {
        self.inner.describe()
    }

    fn layer(&self, index: usize) -> snowmelt_image::Result<Box<dyn Read + '_>> {
        let inner = self.inner.layer(index)?;
        let name = format!("layer {}", index + 1);
        Ok(Box::new(WatchedLayer { inner, name, origin: self }))
    }
}

struct WatchedLayer<'a> {
    inner: Box<dyn Read + 'a>,
    name: String,
    origin: &'a JobOrigin,
}

impl Read for WatchedLayer<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)? as u64;
        let all = self.origin.bytes.fetch_add(count, Ordering::Relaxed) + count;
        self.origin.job.read(&self.name, all)?;
        Ok(count as usize)
    }
}
