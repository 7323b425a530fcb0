//! Answers the kernel's FUSE requests for one mount, until it is unmounted.
//!
//! One thread receives requests; those that may wait for the network are answered by tasks.
//! Invariant: every request is answered exactly once, a failed read with EIO, so that no read of an
//! image waits longer than the source's retry policy. Requests that a killed server has not
//! answered are sent again to the server that takes over.

use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rustix::io::Errno;
use tokio::runtime::Handle;

use super::protocol::{self, FuseOperation, FuseRequest};
use crate::{Error, Result};

/// The bytes of the buffer for a request. The kernel requires room for its largest request, which
/// here contains a name.
const REQUEST_BYTES: usize = 64 << 10;

/// The body of a reply, or an errno.
pub(super) type FuseAnswer = Result<Vec<u8>, Errno>;

/// The contents of a mount.
pub(super) trait Serve: Send + Sync + 'static {
    /// Answers an operation that needs no block; `None` for other operations.
    fn answer_now(&self, operation: &FuseOperation) -> Option<FuseAnswer>;

    /// Answers an operation for which `answer_now` has no answer.
    fn answer_async(&self, operation: FuseOperation) -> impl Future<Output = FuseAnswer> + Send;
}

/// The contents of a mount and the connection to the kernel.
pub(super) struct Server<S> {
    device: File,
    contents: S,
    requests: Arc<AtomicU64>,
}

impl<S: Serve> Server<S> {
    /// Makes a server, which counts its requests in `requests`.
    pub fn new(device: File, contents: S, requests: &Arc<AtomicU64>) -> Self {
        Self { device, contents, requests: Arc::clone(requests) }
    }

    /// Makes the kernel resend requests that a previous server has received but not answered (Linux
    /// 6.9).
    pub fn take_over(&self) -> Result<()> {
        let sent = (&self.device).write_all(&protocol::resend());
        sent.map_err(|source| Error::Mount { step: "take over a mount", source })
    }

    /// Serves in a separate thread; reads run on `runtime`.
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
                    if let Some(request) = FuseRequest::parse(&buffer[..count]) {
                        self.answer(request, runtime);
                    }
                }
                // ENOENT: the request was aborted before it was read.
                Err(error) if is(&error, &[Errno::INTR, Errno::AGAIN, Errno::NOENT]) => {}
                // ENODEV: the file system was unmounted.
                Err(error) if is(&error, &[Errno::NODEV]) => return,
                Err(error) => {
                    tracing::error!(%error, "cannot serve an image's mount any longer");
                    return;
                }
            }
        }
    }

    fn answer(self: &Arc<Self>, request: FuseRequest, runtime: &Handle) {
        let FuseRequest { unique, operation } = request;
        self.requests.fetch_add(1, Ordering::Relaxed);
        if operation == FuseOperation::NoReply {
            return;
        }
        // In this thread: an answer that needs no block is less work than to start a task.
        if let Some(answer) = self.contents.answer_now(&operation) {
            return self.reply(unique, answer);
        }
        let server = Arc::clone(self);
        runtime.spawn(async move {
            let answer = server.contents.answer_async(operation).await;
            server.reply(unique, answer);
        });
    }

    /// Sends a reply. Each reply must be a single write. The kernel refuses replies to aborted
    /// requests.
    fn reply(&self, unique: u64, answer: FuseAnswer) {
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
