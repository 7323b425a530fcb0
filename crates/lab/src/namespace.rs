//! Network namespaces that are kept by a bind mount in the lab's folder, like those of `ip netns`.
//!
//! Invariant: unmounting and unlinking the file releases the namespace everywhere: copies of the
//! mount in other mount namespaces vanish with the file.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::mount::{UnmountFlags, mount_bind, unmount};
use snowmelt_kernel::namespace::{flags, join, unshare};
use snowmelt_network::netlink::Socket;

use crate::{Error, Result};

/// A namespace and a socket in it.
#[derive(Debug)]
pub struct Namespace {
    fd: OwnedFd,
    /// The socket for devices, addresses, routes and queues.
    pub route: Socket,
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Creates a namespace for each path, in a thread of its own, so that no thread has to return to
/// its namespace.
pub fn make(paths: Vec<PathBuf>) -> Result<Vec<Namespace>> {
    visit(move || paths.iter().map(|path| make_here(path)).collect())
}

/// Opens an existing namespace.
pub fn open(path: &Path) -> Result<Namespace> {
    let fd: OwnedFd = File::open(path).map_err(Error::folder(path))?.into();
    visit(move || {
        join(&fd, flags::NETWORK).map_err(Error::step("enter a host's network namespace"))?;
        Ok(Namespace { fd, route: socket()? })
    })
}

/// Releases a namespace; the kernel removes it when no process is in it. The file need not exist.
pub fn remove(path: &Path) -> Result<()> {
    // It fails if the namespace is not mounted: after a reboot, or before the first mount.
    let _ = unmount(path, UnmountFlags::DETACH);
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::folder(path)(error)),
        _ => Ok(()),
    }
}

/// Identifies a namespace as long as it exists (device and inode).
pub fn identity(path: impl AsRef<Path>) -> Option<(u64, u64)> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

fn make_here(path: &Path) -> Result<Namespace> {
    unshare(flags::NETWORK).map_err(Error::step("make a network namespace"))?;
    File::create_new(path).map_err(Error::folder(path))?;
    mount_bind("/proc/thread-self/ns/net", path)
        .map_err(|error| Error::step("mount a network namespace")(error.into()))?;
    let fd = File::open(path).map_err(Error::folder(path))?.into();
    Ok(Namespace { fd, route: socket()? })
}

fn socket() -> Result<Socket> {
    Socket::open(None).map_err(Error::step("open a netlink socket"))
}

fn visit<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let visitor = thread::Builder::new().name("lab-visit".into()).spawn(work);
    let visitor = visitor.map_err(Error::step("start a thread"))?;
    let lost = || Error::step("enter a namespace")(io::ErrorKind::Other.into());
    visitor.join().unwrap_or_else(|_| Err(lost()))
}
