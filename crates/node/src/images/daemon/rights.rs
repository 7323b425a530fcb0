//! The rights of a daemon that a broker has started for a server without those of root.
//!
//! Invariant: the daemon has the server's user before it reads the first byte of the server, and of
//! the capabilities only those for mounts and their namespaces. So paths that the server names give it nothing of others.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Uid, chownat, makedev, mknodat};
use snowmelt_kernel::mount::{self, Attributes};
use snowmelt_kernel::namespace::{flags, unshare};
use snowmelt_kernel::process::DaemonUser;
use snowmelt_sandbox::PlatformProcess;

/// The number of the device by which file systems are answered.
const FUSE: (u32, u32) = (10, 229);

/// Folders one of which every machine has: the device is made there, and then shown in the place of
/// the machine's.
const POINTS: [&str; 3] = ["/mnt", "/media", "/home"];

/// Becomes the user, in a mount namespace where `/dev/fuse` belongs to the user, and confines this
/// process.
pub(super) fn take_rights(user: DaemonUser) -> io::Result<()> {
    const CAP_SYS_ADMIN: u32 = 21;
    /// For the mount namespace of the daemon before this one.
    const CAP_SYS_CHROOT: u32 = 18;
    unshare(flags::MOUNT)?;
    mount::make_private()?;
    own_device(user)?;
    user.take_rights(&[CAP_SYS_CHROOT, CAP_SYS_ADMIN])?;
    PlatformProcess::ImageDaemon.restrict_system_calls().map_err(io::Error::other)
}

/// Shows a device of the user's at `/dev/fuse`. Many machines let only root open theirs.
fn own_device(user: DaemonUser) -> io::Result<()> {
    let fuse = Path::new("/dev/fuse");
    // A machine without it serves images by raw files alone.
    if !fuse.exists() {
        return Ok(());
    }
    let point = POINTS.into_iter().map(Path::new).find(|point| point.is_dir());
    let point = point.ok_or(io::ErrorKind::NotFound)?;
    let inert = Attributes::MOUNT_ATTR_NOSUID | Attributes::MOUNT_ATTR_NOEXEC;
    let folder = mount::fresh("tmpfs", &[("size", "4k"), ("mode", "755")], inert)?;
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(&folder, "fuse", FileType::CharacterDevice, mode, makedev(FUSE.0, FUSE.1))?;
    let owner = (Some(Uid::from_raw(user.user)), Some(Gid::from_raw(user.group)));
    chownat(&folder, "fuse", owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW)?;
    mount::attach_at(folder.as_fd(), CWD, point)?;
    mount::bind(&point.join("fuse"), fuse)?;
    // What is there on this machine, such as a disk with the state, is needed.
    mount::detach(point)
}
