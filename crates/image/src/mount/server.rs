//! Answers the kernel's requests for one mount, until the mount is gone.
//!
//! One thread takes requests; what may wait for a network is answered by tasks.
//! Invariant: every request is answered exactly once, a failed read with EIO, so that nobody who
//! reads from an image ever hangs longer than the source's patience. What a server leaves unanswered
//! when its process is killed, the one that takes over is asked again.

use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rustix::io::Errno;
use tokio::runtime::Handle;

use super::protocol::{self, Ask, Request};
use crate::{Error, Result};

/// The kernel wants room for its largest request, which here is a name.
const REQUEST_BYTES: usize = 64 << 10;

/// The own bytes of a reply, or why there are none.
pub(super) type Answer = Result<Vec<u8>, Errno>;

/// What a mount shows.
pub(super) trait Serve: Send + Sync + 'static {
    /// The answer to what needs no block.
    fn at_once(&self, ask: &Ask) -> Option<Answer>;

    /// The answer to all else.
    fn in_time(&self, ask: Ask) -> impl Future<Output = Answer> + Send;
}

/// What is shown, and the connection to the kernel.
pub(super) struct Server<S> {
    device: File,
    shown: S,
    asked: Arc<AtomicU64>,
}

impl<S: Serve> Server<S> {
    /// Requests are counted in `asked`.
    pub fn new(device: File, shown: S, asked: &Arc<AtomicU64>) -> Self {
        Self { device, shown, asked: Arc::clone(asked) }
    }

    /// Has the kernel ask again what a server that is gone had taken and not answered (Linux 6.9).
    pub fn take_over(&self) -> Result<()> {
        let asked = (&self.device).write_all(&protocol::resend());
        asked.map_err(|source| Error::Mount { step: "take over a mount", source })
    }

    /// Serves in a thread of its own; reads run on `runtime`.
    pub fn start(self, runtime: Handle) -> Result<()> {
        let server = Arc::new(self);
        let named = thread::Builder::new().name("image-mount".to_owned());
        let started = named.spawn(move || server.serve(&runtime));
        started.map(drop).map_err(|source| Error::Mount { step: "start a thread", source })
    }

    fn serve(self: Arc<Self>, runtime: &Handle) {
        let mut buffer = vec![0; REQUEST_BYTES];
        loop {
            match (&self.device).read(&mut buffer) {
                Ok(count) => {
                    if let Some(request) = Request::parse(&buffer[..count]) {
                        self.answer(request, runtime);
                    }
                }
                // ENOENT: the request was given up before it was taken.
                Err(error) if is(&error, &[Errno::INTR, Errno::AGAIN, Errno::NOENT]) => {}
                // ENODEV: the mount is gone.
                Err(error) if is(&error, &[Errno::NODEV]) => return,
                Err(error) => {
                    tracing::error!(%error, "an image's mount cannot be served any more");
                    return;
                }
            }
        }
    }

    fn answer(self: &Arc<Self>, request: Request, runtime: &Handle) {
        let Request { unique, ask } = request;
        self.asked.fetch_add(1, Ordering::Relaxed);
        if ask == Ask::Silent {
            return;
        }
        if let Some(answer) = self.shown.at_once(&ask) {
            return self.reply(unique, answer);
        }
        let server = Arc::clone(self);
        runtime.spawn(async move {
            let answer = server.shown.in_time(ask).await;
            server.reply(unique, answer);
        });
    }

    /// One write is one reply. The kernel refuses the reply to a request that was given up.
    fn reply(&self, unique: u64, answer: Answer) {
        let (error, body) = match answer {
            Ok(body) => (0, body),
            Err(errno) => (errno.raw_os_error(), Vec::new()),
        };
        let header = protocol::header(unique, error, body.len());
        let parts = [IoSlice::new(&header), IoSlice::new(&body)];
        if let Err(error) = (&self.device).write_vectored(&parts)
            && !is(&error, &[Errno::NOENT, Errno::NODEV])
        {
            tracing::error!(%error, "the kernel refuses a reply about an image");
        }
    }
}

fn is(error: &io::Error, errnos: &[Errno]) -> bool {
    Errno::from_io_error(error).is_some_and(|found| errnos.contains(&found))
}
