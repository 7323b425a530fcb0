//! An instance: one sandbox that runs one unit of user code.
//!
//! Invariant: an unused instance is paused, so it takes no processor time whatever its threads do.
//! It resumes just after a message was written to it, so that the instance finds the message
//! immediately and is not woken twice.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use futures::FutureExt;
use snowmelt_kernel::lock::Lock;
use snowmelt_ledger::Reservation;
use snowmelt_sandbox::Sandbox;
use snowmelt_types::ByteSize;
use snowmelt_wire::{Frame, Kind, Load, write_frame};

use super::answer;
use crate::files::function_files::FileTree;
use crate::import_cache::{Admitted, Child};
use crate::process::log::LogCollector;
use crate::process::readable_stream::ReadableStream;
use crate::{Error, Result, Unit};

/// A sandbox that runs user code.
#[derive(Debug)]
pub(crate) struct Instance {
    pub sandbox: Sandbox,
    pub log: LogCollector,
    // Dropped after the sandbox: a child dies with its zygote. `None` for a program of its own.
    zygote: Option<Child>,
    // Connections on which a function is loaded: a call that takes one needs no load. Functions of
    // the same code share instances.
    loaded: Mutex<Vec<(Load, ReadableStream)>>,
    // True after a call was given up: the state inside is not known.
    spoiled: AtomicBool,
    // The image that the instance runs in, until its first function is loaded.
    starts_in: Mutex<Option<String>>,
    // The files and the code are held, so that they are not removed.
    _files: Option<Arc<FileTree>>,
    _code: Option<Arc<Lock>>,
    // The room is given back last, after the sandbox.
    room: Option<Reservation>,
}

impl Instance {
    /// Takes charge of a sandbox and of its part of the host; keeps at most `log` bytes of its
    /// output between two reads.
    pub fn new(
        mut sandbox: Sandbox,
        zygote: Option<Child>,
        log: ByteSize,
        room: Option<Reservation>,
    ) -> Result<Self> {
        let read_end = sandbox.take_log().ok_or(Error::OUTPUT_TAKEN)?;
        let log = LogCollector::new(read_end, log)?;
        let loaded = Mutex::default();
        let spoiled = AtomicBool::new(false);
        let starts_in = Mutex::default();
        let _files = None;
        let _code = None;
        Ok(Self { sandbox, log, zygote, loaded, spoiled, starts_in, _files, _code, room })
    }

    /// Returns whether the instance has room of its own, so that it can be kept idle.
    pub fn has_room(&self) -> bool {
        self.room.is_some()
    }

    /// Returns the number of the slot of the first zygote above the instance; `None` for a program.
    pub fn zygote_slot(&self) -> Option<u64> {
        self.zygote.as_ref()?.slot().map(Admitted::number)
    }

    /// Notes that the instance runs in an image, by the image's digest; `None` if it runs in none.
    pub fn in_image(mut self, digest: Option<String>) -> Self {
        self.starts_in = Mutex::new(digest);
        self
    }

    /// Makes this an instance of a unit, whose code and files are kept as long as the instance, and
    /// whose secrets are hidden in its output.
    pub fn of(mut self, unit: &Unit) -> Self {
        self.log.hide(unit.own.secrets.clone());
        (self._files, self._code) = (unit.own.files.clone(), unit.own.code.clone());
        self.in_image(unit.image())
    }

    /// Returns the image whose start this instance has just completed, the first time that it is
    /// called.
    pub fn started_in(&self) -> Option<String> {
        self.starts_in.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns true until the end of the instance is known.
    pub fn is_alive(&self) -> bool {
        self.sandbox.wait().now_or_never().is_none()
    }

    /// Returns whether the instance may be used again.
    pub fn is_sound(&self) -> bool {
        !self.spoiled.load(Ordering::Acquire) && self.is_alive()
    }

    /// Marks the instance as not to be used again.
    pub fn spoil(&self) {
        self.spoiled.store(true, Ordering::Release);
    }

    /// Stops the processes of the instance; `false` if they cannot be stopped, so that it cannot be
    /// kept.
    pub fn pause(&self) -> bool {
        self.sandbox.pause().inspect_err(|error| tracing::debug!(%error, "cannot pause")).is_ok()
    }

    /// Sends the instance a message over one of its connections, and resumes its processes.
    pub async fn send(&self, stream: &mut ReadableStream, frame: &Frame) -> Result<()> {
        let mut writing = pin!(write_frame(stream, frame));
        // The part that the socket does not hold waits until the instance reads.
        let written = futures::poll!(&mut writing);
        self.sandbox.resume().map_err(snowmelt_wire::Error::from)?;
        match written {
            Poll::Ready(written) => Ok(written?),
            Poll::Pending => Ok(writing.await?),
        }
    }

    /// Returns the memory that the instance holds now; 0 where the kernel does not count it.
    pub fn memory(&self) -> ByteSize {
        self.sandbox.memory().unwrap_or(ByteSize(0))
    }

    /// Loads code on a new connection; returns that connection with the first message of the
    /// instance.
    pub async fn load(&self, load: &Load) -> Result<(ReadableStream, Frame)> {
        let mut stream = self.connect().map_err(snowmelt_wire::Error::from)?;
        self.send(&mut stream, &Frame::json(Kind::Load, load)?).await?;
        let said = next(&mut stream).await?;
        Ok((stream, said))
    }

    fn connect(&self) -> std::io::Result<ReadableStream> {
        ReadableStream::new(self.sandbox.connect()?)
    }

    /// Takes a connection on which this function is loaded, for one call at a time; `None` if there
    /// is none.
    pub fn take_loaded(&self, load: &Load) -> Option<ReadableStream> {
        let mut loaded = self.loaded();
        let place = loaded.iter().rposition(|(other, _)| other == load)?;
        Some(loaded.swap_remove(place).1)
    }

    /// Keeps a connection on which a function is loaded for the next call.
    pub fn keep_loaded(&self, load: &Load, stream: ReadableStream) {
        self.loaded().push((load.clone(), stream));
    }

    /// Returns whether this function is loaded on a connection, so that a call needs no load.
    pub fn is_loaded(&self, load: &Load) -> bool {
        self.loaded().iter().any(|(other, _)| other == load)
    }

    fn loaded(&self) -> MutexGuard<'_, Vec<(Load, ReadableStream)>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the next frame that is not the answer of a function; the end of the stream is an error.
pub(crate) async fn next(stream: &mut ReadableStream) -> Result<Frame> {
    answer::read_other(stream).await
}
