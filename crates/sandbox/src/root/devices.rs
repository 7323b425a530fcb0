//! `/dev`: a file system of its own with only the five devices that programs need.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, makedev, mknodat};
use rustix::io::Errno;
use snowmelt_kernel::mount::{self, Attributes};
use snowmelt_kernel::rootless;

use super::builder::RootBuilder;
use crate::fault::{StepFault, doing};

const DEVICES: [(&str, (u32, u32)); 5] =
    [("null", (1, 3)), ("zero", (1, 5)), ("full", (1, 7)), ("random", (1, 8)), ("urandom", (1, 9))];

/// The links in `/dev`. `shm` is a link to the scratch, so that the limit of the scratch includes
/// shared memory.
const LINKS: [(&str, &str); 5] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/shm", "/tmp"),
];

/// Mounts the file system at `/dev`. The nodes are made here, not bind-mounted from the host, so
/// that a file in the place of a device there cannot get in (CVE-2025-31133). Where this process
/// may not make nodes, the host's are bind-mounted after a check of their numbers.
pub(super) fn assemble(builder: &RootBuilder<'_>) -> Result<(), StepFault> {
    let options = [("size", "64k"), ("mode", "755")];
    let attributes = Attributes::MOUNT_ATTR_NOSUID | Attributes::MOUNT_ATTR_NOEXEC;
    let fresh = mount::fresh("tmpfs", &options, attributes);
    let top = doing("make the file system of the devices", fresh)?;
    let target = builder.folder(Path::new("/dev"))?;
    doing("attach the file system of the devices", mount::attach(&top, &target))?;
    // A shared mapping of it is memory that only a control group counts.
    let is_uncounted = |name: &str| name == "zero" && rootless::entered().is_some();
    for (name, number) in DEVICES.into_iter().filter(|(name, _)| !is_uncounted(name)) {
        make(builder, &top, name, number)?;
    }
    for (path, to) in LINKS {
        builder.link(Path::new(path), Path::new(to))?;
    }
    let read_only = attributes | Attributes::MOUNT_ATTR_RDONLY;
    doing("make the devices read-only", mount::set_attributes_of(&top, read_only))
}

fn make(
    builder: &RootBuilder<'_>,
    top: impl AsFd,
    name: &str,
    number: (u32, u32),
) -> Result<(), StepFault> {
    let mode = Mode::from_raw_mode(0o666);
    let device = makedev(number.0, number.1);
    match mknodat(&top, name, FileType::CharacterDevice, mode, device) {
        Err(Errno::PERM) => builder.device(&Path::new("/dev").join(name), number),
        made => {
            // Independent of this process's umask.
            let opened = made
                .and_then(|()| rustix::fs::chmodat(&top, name, mode, rustix::fs::AtFlags::empty()));
            doing(format!("make the device {name}"), opened.map_err(Into::into))
        }
    }
}
