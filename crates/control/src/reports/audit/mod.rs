//! The audit: one line of JSON for each action that changes or reads something of value, each with
//! the digest of the line before it.
//!
//! Invariants: no request waits for the disk. What cannot be written is counted, and a line says
//! how much it was. Lines have no secrets, no texts of SQL, no arguments and no answers.
//!
//! | member | owns |
//! |---|---|
//! | `event` | the events of which lines tell |
//! | `chain` | lines with their digests, and the check of files |
//! | `logins` | failed logins, of which many are one line |
//! | `writer` | the thread that writes the files |
//! | `follower` | the lines of the files from some line on |
//! | `collector` | requests to a collector over HTTP |
//! | `action` | an action, from its request to its line |

mod action;
mod chain;
mod collector;
mod event;
mod follower;
mod logins;
#[cfg(test)]
mod tests;
mod writer;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use snowmelt_types::{ByteSize, Code, ErrorReport};
use tokio_util::sync::CancellationToken;

pub(crate) use action::{AuditNote, AuditedRequest};
pub use chain::{AuditBreak, AuditCheck, verify};
use event::AuditEvent;
use logins::FailedLogins;
use writer::Writer;

/// The most lines that wait to be written: those of a second of many calls, or of minutes of a disk
/// that is full.
const MAX_QUEUED: usize = 65_536;

/// Settings of an operator for the audit.
#[derive(Clone, Debug)]
pub struct AuditSettings {
    /// The folder of the files.
    pub folder: PathBuf,
    /// The size at which a file is closed and the next one begun.
    pub file_size: ByteSize,
    /// The number of closed files that are kept; 0: all.
    pub files: u32,
    /// Whether requests are refused while lines cannot be written.
    pub is_required: bool,
    /// The address to which lines are posted as well.
    pub collector: Option<String>,
}

/// The audit of a platform. Cheap to clone; the default writes nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Audit {
    inner: Option<Arc<Inner>>,
}

#[derive(Debug)]
struct Inner {
    queue: Mutex<Option<SyncSender<AuditEvent>>>,
    state: Arc<AuditState>,
    is_required: bool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The state that the writer and those who send it lines share.
#[derive(Debug, Default)]
struct AuditState {
    /// The lines that were lost and that no line tells of yet.
    lost: AtomicU64,
    /// Whether the last write failed.
    is_failing: AtomicBool,
    /// Whether the server ends, so that no write is tried again.
    is_closing: AtomicBool,
    logins: FailedLogins,
    /// Wakes the collector when lines were written.
    written: tokio::sync::Notify,
}

impl Audit {
    /// Begins to write, after the lines that are there.
    ///
    /// # Errors
    /// `SM-0531` for a folder that cannot be used.
    pub fn open(settings: AuditSettings) -> Result<Self, ErrorReport> {
        let (queue, events) = sync_channel(MAX_QUEUED);
        let state = Arc::new(AuditState::default());
        let is_required = settings.is_required;
        let writer = Writer::open(settings, Arc::clone(&state))?;
        let thread = std::thread::Builder::new().name("audit".to_owned());
        let thread = thread.spawn(move || writer.run(&events)).map_err(|error| {
            ErrorReport::new(Code::AUDIT, format!("no thread for the audit: {error}"))
        })?;
        let thread = Mutex::new(Some(thread));
        let inner = Inner { queue: Mutex::new(Some(queue)), state, is_required, thread };
        let audit = Self { inner: Some(Arc::new(inner)) };
        audit.write(AuditEvent::start());
        Ok(audit)
    }

    /// Posts the lines to the collector of the settings, until the server ends.
    pub async fn post(self, settings: AuditSettings, over: CancellationToken) {
        let (Some(inner), Some(collector)) = (self.inner, settings.collector) else { return };
        collector::post(&settings.folder, &collector, &inner.state.written, &over).await;
    }

    /// Refuses a request while lines cannot be written, if the operator wants that.
    pub fn check(&self) -> Result<(), ErrorReport> {
        match &self.inner {
            Some(inner) if inner.is_required && inner.state.is_failing.load(Ordering::Relaxed) => {
                let message = "the audit cannot be written, and without it nothing is done";
                Err(ErrorReport::new(Code::AUDIT, message)
                    .hint("the log of the server says why; often the disk is full")
                    .retry_after(1))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether lines are written at all.
    pub fn is_on(&self) -> bool {
        self.inner.is_some()
    }

    /// Notes a request whose key was not accepted.
    pub fn failed_login(&self, address: Option<IpAddr>, code: &str) {
        let Some(inner) = &self.inner else { return };
        if let Some(event) = inner.state.logins.note(address, code) {
            self.write(event);
        }
    }

    /// Writes a line in the background.
    fn write(&self, event: AuditEvent) {
        let Some(inner) = &self.inner else { return };
        let queue = inner.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = queue.as_ref().map(|queue| queue.try_send(event));
        if matches!(sent, Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_)))) {
            inner.state.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes what waits and a last line. Nothing is written after this.
    pub async fn close(&self) {
        let Some(inner) = &self.inner else { return };
        self.write(AuditEvent::end());
        inner.state.is_closing.store(true, Ordering::Relaxed);
        drop(inner.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = inner.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}
