//! Answers the kernel's requests for one mount, until the mount is gone.
//!
//! One thread takes requests; reads are answered by tasks, because each may wait for a network.
//! Invariant: every request is answered exactly once, a failed read with EIO, so that nobody who
//! reads from an image ever hangs longer than the source's patience. What a server leaves unanswered
//! when its process is killed, the one that takes over is asked again.

use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;
use std::thread;

use rustix::io::Errno;
use tokio::runtime::Handle;

use super::protocol::{self, Ask, ROOT, Request};
use crate::read::BlobReader;
use crate::{Error, Result};

/// The kernel wants room for its largest request, which here is a name.
const REQUEST_BYTES: usize = 64 << 10;

/// A file of the mount: its name is its number from 0.
pub(super) fn name(index: usize) -> String {
    index.to_string()
}

/// The files and the connection to the kernel.
pub(super) struct Server {
    device: File,
    files: Vec<Arc<BlobReader>>,
}

impl Server {
    pub fn new(device: File, files: Vec<Arc<BlobReader>>) -> Self {
        Self { device, files }
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
        let unique = request.unique;
        let reply = match request.ask {
            Ask::Read { node, offset, size } => {
                let server = Arc::clone(self);
                runtime.spawn(async move {
                    let reply = server.read(node, offset, size).await;
                    server.reply(unique, reply);
                });
                return;
            }
            Ask::Silent => return,
            Ask::Init { flags } => Ok(protocol::init(flags)),
            Ask::Lookup { folder, name } => self.lookup(folder, &name),
            Ask::GetAttributes { node } => {
                self.size(node).map(|size| protocol::attributes(node, size)).ok_or(Errno::NOENT)
            }
            Ask::Open => Ok(protocol::opened()),
            Ask::Nothing => Ok(Vec::new()),
            Ask::Unknown => Err(Errno::NOSYS),
        };
        self.reply(unique, reply);
    }

    async fn read(&self, node: u64, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        let file = self.file(node).ok_or(Errno::NOENT)?;
        let end = offset.saturating_add(u64::from(size));
        file.read(offset..end).await.map_err(|error| {
            tracing::error!(%error, node, offset, "a read from an image fails");
            Errno::IO
        })
    }

    fn lookup(&self, folder: u64, wanted: &[u8]) -> Result<Vec<u8>, Errno> {
        let index = (0..self.files.len()).find(|index| name(*index).as_bytes() == wanted);
        match index.filter(|_| folder == ROOT) {
            Some(index) => {
                let node = ROOT + 1 + index as u64;
                Ok(protocol::found(node, self.files[index].raw_size()))
            }
            None => Err(Errno::NOENT),
        }
    }

    fn size(&self, node: u64) -> Option<u64> {
        if node == ROOT { Some(0) } else { self.file(node).map(|file| file.raw_size()) }
    }

    fn file(&self, node: u64) -> Option<&Arc<BlobReader>> {
        self.files.get(usize::try_from(node.checked_sub(ROOT + 1)?).ok()?)
    }

    /// One write is one reply. The kernel refuses the reply to a request that was given up.
    fn reply(&self, unique: u64, reply: Result<Vec<u8>, Errno>) {
        let (error, body) = match reply {
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
