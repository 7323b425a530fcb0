//! The mounts of an image: FUSE with one file for each blob and EROFS on those files, or FUSE with
//! the image's files.
//!
//! None is attached anywhere: whoever makes a sandbox attaches a copy in its mount namespace.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use snowmelt_kernel::fds::with_own_table;
use snowmelt_kernel::mount::{self, Attributes};
use tokio::runtime::Handle;

use super::Form;
use super::blobs::{Blobs, name};
use super::failures::Failures;
use super::server::{Serve, Server};
use super::tree::Tree;
use crate::read::{BlobReader, Blocks};
use crate::{Error, Image, Result};

/// A mounted image. Its blocks come on demand as long as this lives; copies of the mount stay and
/// give EIO for what is not in the page cache once it does not.
pub struct LazyMount {
    root: OwnedFd,
    metadata: Arc<BlobReader>,
    layers: Vec<Arc<BlobReader>>,
    /// The connection to the kernel, which ends when its last holder is gone.
    device: OwnedFd,
    asked: Arc<AtomicU64>,
    failures: Arc<Failures>,
    /// The kernel ends the connection when the last user of the mount is gone.
    _files: Option<OwnedFd>,
}

impl LazyMount {
    /// Mounts with the manifest alone: the first blocks that the kernel reads are fetched by its
    /// reading them. Needs the right to mount. Blocks the thread; reads run on `runtime`, which must
    /// have a thread of its own.
    pub fn new(image: &Image, blocks: &Arc<Blocks>, runtime: &Handle, form: Form) -> Result<Self> {
        let (metadata, layers) = readers(image, blocks)?;
        let device = connection()?;
        let fuse = mount_fuse(device.as_fd(), form)?;
        let (parts, failures) = ((&metadata, &layers[..]), Arc::default());
        let asked = serve(form, device.as_fd(), parts, &failures, (runtime, Beginning::New))?;
        let began = Instant::now();
        let (root, files) = match form {
            Form::Fuse => (fuse, None),
            Form::Erofs => {
                let mounted = mount_served(fuse.as_fd(), layers.len());
                // What the kernel could not read has a cause that it does not know.
                let root = mounted.map_err(|error| failures.take(began).unwrap_or(error))?;
                (root, Some(fuse))
            }
        };
        Ok(Self { root, metadata, layers, device, asked, failures, _files: files })
    }

    /// Goes on with the mount of a process that is gone, by what [`Self::root`] and
    /// [`Self::device`] gave there: who reads through it only waits a little longer.
    pub fn take_over(
        image: &Image,
        blocks: &Arc<Blocks>,
        runtime: &Handle,
        form: Form,
        (root, device): (OwnedFd, OwnedFd),
    ) -> Result<Self> {
        let (metadata, layers) = readers(image, blocks)?;
        let (parts, failures) = ((&metadata, &layers[..]), Arc::default());
        let beginning = Beginning::TakenOver;
        let asked = serve(form, device.as_fd(), parts, &failures, (runtime, beginning))?;
        Ok(Self { root, metadata, layers, device, asked, failures, _files: None })
    }

    /// The root of the image's mount, detached.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// The connection to the kernel. While somebody holds a copy, reads wait for a server instead
    /// of failing when this process is killed.
    pub fn device(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    /// What the kernel has asked of this server so far.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Why the last read failed, if one did since then; told once.
    pub fn why_reads_failed(&self, since: Instant) -> Option<Error> {
        self.failures.take(since)
    }

    /// The reader of the metadata part.
    pub fn metadata(&self) -> &Arc<BlobReader> {
        &self.metadata
    }

    /// The readers of the layers, the lowest first.
    pub fn layers(&self) -> &[Arc<BlobReader>] {
        &self.layers
    }
}

/// Mounts EROFS on the files that this process serves. If it is killed meanwhile, the thread that
/// mounts waits for an answer until the connection ends, so it must not hold that open.
fn mount_served(fuse: BorrowedFd<'_>, layers: usize) -> Result<OwnedFd> {
    let path = |index| file_of(fuse, index);
    let mounted = with_own_table(fuse, || {
        let devices: Vec<PathBuf> = (1..=layers).map(path).collect();
        mount_files(&path(0), &devices)
    });
    mounted.map_err(failed("begin a thread that mounts"))?
}

/// Mounts EROFS straight on files: the metadata part and the raw bytes of each layer. Detached.
pub fn mount_files(metadata: &Path, devices: &[PathBuf]) -> Result<OwnedFd> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let source = text(metadata);
    let devices: Vec<String> = devices.iter().map(|path| text(path)).collect();
    let mut options = vec![("source", source.as_str())];
    options.extend(devices.iter().map(|path| ("device", path.as_str())));
    // Without a page cache of the files below, each page is in memory once.
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

type Readers = (Arc<BlobReader>, Vec<Arc<BlobReader>>);

/// Of the metadata part and of the layers.
fn readers(image: &Image, blocks: &Arc<Blocks>) -> Result<Readers> {
    let reader = |blob| BlobReader::new(Arc::clone(blocks), blob).map(Arc::new);
    let layers = image.layers.iter().cloned().map(reader).collect::<Result<Vec<_>>>()?;
    Ok((reader(image.metadata.clone())?, layers))
}

fn connection() -> Result<OwnedFd> {
    let opened = File::options().read(true).write(true).open("/dev/fuse");
    opened.map(OwnedFd::from).map_err(failed("open /dev/fuse"))
}

/// A detached FUSE mount. Its files are for the kernel alone under EROFS, otherwise for whoever
/// their modes let.
fn mount_fuse(device: BorrowedFd<'_>, form: Form) -> Result<OwnedFd> {
    let descriptor = device.as_raw_fd().to_string();
    let mut options = vec![
        ("fd", descriptor.as_str()),
        ("rootmode", "40000"),
        ("user_id", "0"),
        ("group_id", "0"),
    ];
    let attributes = match form {
        Form::Erofs => mount::inert() | Attributes::MOUNT_ATTR_NOEXEC,
        Form::Fuse => {
            options.extend([("allow_other", ""), ("default_permissions", ""), ("ro", "")]);
            mount::inert()
        }
    };
    mount::fresh("fuse", &options, attributes).map_err(failed("mount FUSE"))
}

/// Whether a server is the first of its mount.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beginning {
    New,
    TakenOver,
}

fn serve(
    form: Form,
    device: BorrowedFd<'_>,
    (metadata, layers): (&Arc<BlobReader>, &[Arc<BlobReader>]),
    failures: &Arc<Failures>,
    (runtime, beginning): (&Handle, Beginning),
) -> Result<Arc<AtomicU64>> {
    let failures = Arc::clone(failures);
    match form {
        Form::Erofs => {
            let files = std::iter::once(metadata).chain(layers).map(Arc::clone).collect();
            begin(device, Blobs { files, failures }, runtime, beginning)
        }
        Form::Fuse => {
            let tree = Tree::new(Arc::clone(metadata), layers.to_vec(), failures);
            begin(device, tree, runtime, beginning)
        }
    }
}

fn begin(
    device: BorrowedFd<'_>,
    shown: impl Serve,
    runtime: &Handle,
    beginning: Beginning,
) -> Result<Arc<AtomicU64>> {
    let asked = Arc::default();
    let server = Server::new(own(device)?, shown, &asked);
    if beginning == Beginning::TakenOver {
        server.take_over()?;
    }
    server.start(runtime.clone())?;
    Ok(asked)
}

fn own(device: BorrowedFd<'_>) -> Result<File> {
    device.try_clone_to_owned().map(File::from).map_err(failed("copy a descriptor"))
}

fn file_of(mount: BorrowedFd<'_>, index: usize) -> PathBuf {
    format!("/proc/thread-self/fd/{}/{}", mount.as_raw_fd(), name(index)).into()
}

fn failed(step: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::Mount { step, source }
}
