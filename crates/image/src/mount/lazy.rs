//! The two mounts of an image: FUSE with one file for each blob, EROFS on those files.
//!
//! Neither is attached anywhere: whoever makes a sandbox attaches a copy in its mount namespace.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use snowmelt_kernel::mount::{self, Attributes};
use tokio::runtime::Handle;

use super::server::{Server, name};
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
    /// The kernel ends the connection when the last user of the mount is gone.
    _files: Option<OwnedFd>,
}

impl LazyMount {
    /// Mounts with the manifest alone: the first blocks that the kernel reads are fetched by its
    /// reading them. Needs the right to mount. Blocks the thread; reads run on `runtime`, which must
    /// have a thread of its own.
    pub fn new(image: &Image, blocks: &Arc<Blocks>, runtime: &Handle) -> Result<Self> {
        let (metadata, layers, all) = readers(image, blocks)?;
        let (files, device) = serve(all, runtime)?;
        let path = |index| file_of(files.as_fd(), index);
        let devices: Vec<PathBuf> = (1..=layers.len()).map(path).collect();
        let root = mount_files(&path(0), &devices)?;
        Ok(Self { root, metadata, layers, device, _files: Some(files) })
    }

    /// Goes on with the mount of a process that is gone, by what [`Self::root`] and
    /// [`Self::device`] gave there: who reads through it only waits a little longer.
    pub fn take_over(
        image: &Image,
        blocks: &Arc<Blocks>,
        runtime: &Handle,
        (root, device): (OwnedFd, OwnedFd),
    ) -> Result<Self> {
        let (metadata, layers, all) = readers(image, blocks)?;
        let server = Server::new(own(device.as_fd())?, all);
        server.take_over()?;
        server.start(runtime.clone())?;
        Ok(Self { root, metadata, layers, device, _files: None })
    }

    /// The root of the EROFS mount, detached.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// The connection to the kernel. While somebody holds a copy, reads wait for a server instead
    /// of failing when this process is killed.
    pub fn device(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
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

/// Mounts EROFS straight on files: the metadata part and the raw bytes of each layer. Detached.
pub fn mount_files(metadata: &Path, devices: &[PathBuf]) -> Result<OwnedFd> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let source = text(metadata);
    let devices: Vec<String> = devices.iter().map(|path| text(path)).collect();
    let mut options = vec![("source", source.as_str())];
    options.extend(devices.iter().map(|path| ("device", path.as_str())));
    // Without a page cache of the files below, each page is in memory once.
    let direct: Vec<_> = options.iter().copied().chain([("directio", "")]).collect();
    let failed = |source| Error::Mount { step: "mount EROFS on files", source };
    match mount::fresh("erofs", &direct, mount::inert()) {
        // Before Linux 6.15 the option is unknown.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            mount::fresh("erofs", &options, mount::inert()).map_err(failed)
        }
        outcome => outcome.map_err(failed),
    }
}

type Readers = (Arc<BlobReader>, Vec<Arc<BlobReader>>, Vec<Arc<BlobReader>>);

/// Of the metadata part, of the layers, and of all of them.
fn readers(image: &Image, blocks: &Arc<Blocks>) -> Result<Readers> {
    let reader = |blob| BlobReader::new(Arc::clone(blocks), blob).map(Arc::new);
    let metadata = reader(image.metadata.clone())?;
    let layers = image.layers.iter().cloned().map(reader).collect::<Result<Vec<_>>>()?;
    let all = std::iter::once(&metadata).chain(&layers).map(Arc::clone).collect();
    Ok((metadata, layers, all))
}

/// A detached FUSE mount with these files, served from now on, and its connection.
fn serve(files: Vec<Arc<BlobReader>>, runtime: &Handle) -> Result<(OwnedFd, OwnedFd)> {
    let failed = |step| move |source| Error::Mount { step, source };
    let device = File::options().read(true).write(true).open("/dev/fuse");
    let device = device.map_err(failed("open /dev/fuse"))?;
    let descriptor = device.as_raw_fd().to_string();
    let options =
        [("fd", descriptor.as_str()), ("rootmode", "40000"), ("user_id", "0"), ("group_id", "0")];
    let attributes = mount::inert() | Attributes::MOUNT_ATTR_NOEXEC;
    let mounted = mount::fresh("fuse", &options, attributes).map_err(failed("mount FUSE"))?;
    let server = Server::new(own(device.as_fd())?, files);
    server.start(runtime.clone())?;
    Ok((mounted, device.into()))
}

fn own(device: BorrowedFd<'_>) -> Result<File> {
    let copy = device.try_clone_to_owned();
    copy.map(File::from).map_err(|source| Error::Mount { step: "copy a descriptor", source })
}

fn file_of(mount: BorrowedFd<'_>, index: usize) -> PathBuf {
    format!("/proc/self/fd/{}/{}", mount.as_raw_fd(), name(index)).into()
}
