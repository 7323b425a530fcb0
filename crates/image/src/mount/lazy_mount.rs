//! Mounts of images: FUSE with one file per blob and EROFS on those files, or FUSE with the image's
//! files.
//!
//! All mounts are detached; the process that creates a sandbox attaches a copy in its mount
//! namespace.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustix::process::{getegid, geteuid};
use snowmelt_kernel::fds::with_own_table;
use snowmelt_kernel::mount::{self, Attributes};
use tokio::runtime::Handle;

use super::Form;
use super::blobs::{Blobs, name};
use super::failures::MountFailures;
use super::server::{Serve, Server};
use super::tree::MountTree;
use crate::read::{BlobReader, BlockStore};
use crate::{Error, Image, Result};

/// A mounted image. Its blocks are fetched on demand while this value lives. Copies of the mount
/// remain afterwards, but reads that are not in the page cache fail with EIO.
pub struct LazyMount {
    root: OwnedFd,
    metadata: Arc<BlobReader>,
    layers: Vec<Arc<BlobReader>>,
    /// The connection to the kernel; it is closed with its last descriptor.
    device: OwnedFd,
    requests: Arc<AtomicU64>,
    failures: Arc<MountFailures>,
    /// Keeps the FUSE mount: the kernel closes the connection when the mount has no users.
    _files: Option<OwnedFd>,
}

impl LazyMount {
    /// Mounts an image, given only its manifest: blocks are fetched when the kernel reads them.
    /// Requires the right to mount. Blocks the thread; reads run on `runtime`, which must have a
    /// thread of its own.
    pub fn new(
        image: &Image,
        blocks: &Arc<BlockStore>,
        runtime: &Handle,
        form: Form,
    ) -> Result<Self> {
        Self::of(ImageReaders::new(image, blocks)?, runtime, form)
    }

    /// Mounts an image through readers that others use too.
    pub fn of(readers: ImageReaders, runtime: &Handle, form: Form) -> Result<Self> {
        let ImageReaders { metadata, layers } = readers;
        let device = connection()?;
        let fuse = mount_fuse(device.as_fd(), form)?;
        let failures = Arc::default();
        let start = ServerStart::New;
        let requests = serve(form, device.as_fd(), &metadata, &layers, &failures, runtime, start)?;
        let began = Instant::now();
        let (root, files) = match form {
            Form::Fuse => (fuse, None),
            Form::Erofs => {
                let mounted = mount_served(fuse.as_fd(), layers.len());
                // If a read failed, the kernel's error hides the cause, which the server recorded.
                let root = mounted.map_err(|error| failures.take(began).unwrap_or(error))?;
                (root, Some(fuse))
            }
        };
        Ok(Self { root, metadata, layers, device, requests, failures, _files: files })
    }

    /// Continues the mount of a process that has exited, given the descriptors of [`Self::root`]
    /// and [`Self::device`]: readers only wait a little longer.
    pub fn take_over(
        readers: ImageReaders,
        runtime: &Handle,
        form: Form,
        root: OwnedFd,
        device: OwnedFd,
    ) -> Result<Self> {
        let ImageReaders { metadata, layers } = readers;
        let failures = Arc::default();
        let start = ServerStart::TakeOver;
        let requests = serve(form, device.as_fd(), &metadata, &layers, &failures, runtime, start)?;
        Ok(Self { root, metadata, layers, device, requests, failures, _files: None })
    }

    /// Returns the root of the image's mount, detached.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Returns the connection to the kernel. While another process has a copy, reads wait for a new
    /// server instead of failing when this process is killed.
    pub fn device(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    /// Returns the number of requests that the kernel has sent to this server.
    pub fn request_count(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Takes the reason of the last failed read since that time; each is returned once.
    pub fn take_read_failure(&self, since: Instant) -> Option<Error> {
        self.failures.take(since)
    }

    /// Returns the reader of the metadata part.
    pub fn metadata(&self) -> &Arc<BlobReader> {
        &self.metadata
    }

    /// Returns the readers of the layers, the lowest first.
    pub fn layers(&self) -> &[Arc<BlobReader>] {
        &self.layers
    }
}

/// Mounts EROFS on the files that this process serves. The mounting thread waits for answers until
/// the connection is closed, so it must not hold the connection open itself in case this process is
/// killed.
fn mount_served(fuse: BorrowedFd<'_>, layers: usize) -> Result<OwnedFd> {
    let path = |index| file_of(fuse, index);
    let mounted = with_own_table(fuse, || {
        let devices: Vec<PathBuf> = (1..=layers).map(path).collect();
        mount_files(&path(0), &devices)
    });
    mounted.map_err(failed("start a thread that mounts"))?
}

/// Mounts EROFS directly on files: the metadata part and the raw bytes of each layer. The mount is
/// detached.
pub fn mount_files(metadata: &Path, devices: &[PathBuf]) -> Result<OwnedFd> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let source = text(metadata);
    let devices: Vec<String> = devices.iter().map(|path| text(path)).collect();
    let mut options = vec![("source", source.as_str())];
    options.extend(devices.iter().map(|path| ("device", path.as_str())));
    // Direct I/O bypasses the page cache of the files below, so each page is in memory once.
    let direct: Vec<_> = options.iter().copied().chain([("directio", "")]).collect();
    let failed = failed("mount EROFS on files");
    match mount::fresh("erofs", &direct, mount::inert()) {
        // Before Linux 6.15 the option is unknown.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            mount::fresh("erofs", &options, mount::inert()).map_err(failed)
        }
        outcome => outcome.map_err(failed),
    }
}

/// The readers of the blobs of one image.
#[derive(Clone)]
pub struct ImageReaders {
    metadata: Arc<BlobReader>,
    layers: Vec<Arc<BlobReader>>,
}

impl ImageReaders {
    /// Makes the readers, and fetches nothing yet.
    pub fn new(image: &Image, blocks: &Arc<BlockStore>) -> Result<Self> {
        let reader = |blob| BlobReader::new(Arc::clone(blocks), blob).map(Arc::new);
        let layers = image.layers.iter().cloned().map(reader).collect::<Result<Vec<_>>>()?;
        Ok(Self { metadata: reader(image.metadata.clone())?, layers })
    }

    /// Returns all readers: of the metadata part and of the layers.
    pub fn all(&self) -> impl Iterator<Item = Arc<BlobReader>> + '_ {
        std::iter::once(&self.metadata).chain(&self.layers).map(Arc::clone)
    }
}

fn connection() -> Result<OwnedFd> {
    let opened = File::options().read(true).write(true).open("/dev/fuse");
    opened.map(OwnedFd::from).map_err(failed("open /dev/fuse"))
}

/// Makes a detached FUSE mount. With EROFS, only the kernel accesses its files, as the user of this
/// process; otherwise their modes apply.
fn mount_fuse(device: BorrowedFd<'_>, form: Form) -> Result<OwnedFd> {
    let descriptor = device.as_raw_fd().to_string();
    let user = geteuid().as_raw().to_string();
    let group = getegid().as_raw().to_string();
    let mut options = vec![("fd", descriptor.as_str()), ("rootmode", "40000")];
    let attributes = match form {
        Form::Erofs => {
            options.extend([("user_id", user.as_str()), ("group_id", group.as_str())]);
            mount::inert() | Attributes::MOUNT_ATTR_NOEXEC
        }
        Form::Fuse => {
            // A mount with another user counts as one of that user's own programs.
            options.extend([("user_id", "0"), ("group_id", "0")]);
            options.extend([("allow_other", ""), ("default_permissions", ""), ("ro", "")]);
            mount::inert()
        }
    };
    mount::fresh("fuse", &options, attributes).map_err(failed("mount FUSE"))
}

/// Whether a server is the first of its mount.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ServerStart {
    New,
    TakeOver,
}

fn serve(
    form: Form,
    device: BorrowedFd<'_>,
    metadata: &Arc<BlobReader>,
    layers: &[Arc<BlobReader>],
    failures: &Arc<MountFailures>,
    runtime: &Handle,
    start: ServerStart,
) -> Result<Arc<AtomicU64>> {
    let failures = Arc::clone(failures);
    match form {
        Form::Erofs => {
            let files = std::iter::once(metadata).chain(layers).map(Arc::clone).collect();
            start_server(device, Blobs { files, failures }, runtime, start)
        }
        Form::Fuse => {
            let tree = MountTree::new(Arc::clone(metadata), layers.to_vec(), failures);
            start_server(device, tree, runtime, start)
        }
    }
}

fn start_server(
    device: BorrowedFd<'_>,
    contents: impl Serve,
    runtime: &Handle,
    start: ServerStart,
) -> Result<Arc<AtomicU64>> {
    let requests = Arc::default();
    let server = Server::new(to_file(device)?, contents, &requests);
    if start == ServerStart::TakeOver {
        server.take_over()?;
    }
    server.start(runtime.clone())?;
    Ok(requests)
}

fn to_file(device: BorrowedFd<'_>) -> Result<File> {
    device.try_clone_to_owned().map(File::from).map_err(failed("copy a descriptor"))
}

fn file_of(mount: BorrowedFd<'_>, index: usize) -> PathBuf {
    format!("/proc/thread-self/fd/{}/{}", mount.as_raw_fd(), name(index)).into()
}

fn failed(step: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::Mount { step, source }
}
