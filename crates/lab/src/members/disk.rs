//! The file system of a host's persistent data, which a fault can fill.
//!
//! Invariant: a full disk takes no memory: its size is reduced to the space in use.

use rustix::fs::statvfs;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use snowmelt_types::ByteSize;

use super::host::LabHost;
use crate::{Error, Result, folder};

/// The number of times that the size is reduced again if the host has written something meanwhile.
const ATTEMPTS: usize = 50;
const FLAGS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

/// Gives a host a file system of its own, if it is to have one.
pub fn add(host: &LabHost) -> Result<()> {
    let Some(size) = host.disk else { return Ok(()) };
    folder::make(&host.state, 0o700)?;
    mount("snowmelt-lab", &host.state, "tmpfs", FLAGS, &*options(size))
        .map_err(|errno| Error::step("mount the disk of a host")(errno.into()))
}

/// Makes every write of new data fail.
pub fn fill(host: &LabHost) -> Result<()> {
    let refused = |errno: Errno| Error::step("fill the disk of a host")(errno.into());
    for attempt in 1.. {
        let found = statvfs(&host.state).map_err(refused)?;
        // Size 0 would mean no limit.
        let used = (found.f_blocks - found.f_bfree).max(1) * found.f_frsize;
        match mount_remount(&host.state, FLAGS, &*options(ByteSize(used))) {
            // More is used by now.
            Err(Errno::INVAL) if attempt < ATTEMPTS => {}
            done => return done.map_err(refused),
        }
    }
    Ok(())
}

/// Gives a disk its size again.
pub fn empty(host: &LabHost) -> Result<()> {
    let Some(size) = host.disk else { return Ok(()) };
    mount_remount(&host.state, FLAGS, &*options(size))
        .map_err(|errno| Error::step("empty the disk of a host")(errno.into()))
}

/// Removes the file system at a folder. It need not exist.
pub fn remove(state: &std::path::Path) {
    // It fails where nothing is mounted.
    let _ = unmount(state, UnmountFlags::DETACH);
}

fn options(size: ByteSize) -> std::ffi::CString {
    let text = format!("size={},mode=0700", size.bytes());
    std::ffi::CString::new(text).unwrap_or_default()
}
