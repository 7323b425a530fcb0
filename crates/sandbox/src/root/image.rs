//! A root from the unpacked file system of an image: its top-level folders and files are mounted
//! one by one, so that the platform's own folders (`/proc`, `/dev`, `/tmp`...) are the platform's
//! whatever the image has there: nothing in an image is a mount point that it could have prepared
//! (CVE-2023-27561, CVE-2025-31133, CVE-2025-52565).

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{
    CWD, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, readlinkat,
};
use rustix::io::Errno;
use snowmelt_kernel::mount;

use super::builder::RootBuilder;
use crate::fault::{StepFault, doing};
use crate::spec::{Bind, ImageBind};

/// Top-level names of an image that are ignored.
const OURS: [&str; 6] = ["proc", "sys", "dev", "tmp", "run", "mnt"];

/// The folder of an image in which the platform mounts a file: the addresses of a job.
const CONFIGURATION: &str = "etc";

/// Mounts the contents of the image's `folder`, so that `binds` can be mounted over it.
pub(super) fn assemble(
    builder: &RootBuilder<'_>,
    folder: &Path,
    binds: &[Bind],
) -> Result<(), StepFault> {
    let top = open(folder)?;
    let names = doing("list the image", names(&top))?;
    for name in names.iter().filter(|name| !OURS.contains(&name.as_str())) {
        let divided = if name == CONFIGURATION { lacking(&top, binds)? } else { None };
        match divided {
            Some(inner) => mount_all(builder, &inner, CONFIGURATION)?,
            None => mount_entry(builder, &top, Path::new("/"), name)?,
        }
    }
    Ok(())
}

/// Returns `/etc` of an image, if it lacks a file over which one of `binds` is to be mounted. No
/// file can be added to a read-only folder.
fn lacking(top: &OwnedFd, binds: &[Bind]) -> Result<Option<OwnedFd>, StepFault> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = openat2(top, CONFIGURATION, flags, Mode::empty(), ResolveFlags::BENEATH);
    // A link is mounted as it is.
    let Ok(folder) = found else { return Ok(None) };
    let within = Path::new("/").join(CONFIGURATION);
    let wanted = binds.iter().filter(|bind| bind.target.parent() == Some(&*within));
    for name in wanted.filter_map(|bind| bind.target.file_name()) {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat2(&folder, name, flags, Mode::empty(), ResolveFlags::BENEATH) {
            Err(Errno::NOENT) => return Ok(Some(folder)),
            found => doing("look into /etc of the image", found.map(drop).map_err(Into::into))?,
        }
    }
    Ok(None)
}

/// Mounts the contents of a folder of the image one by one, in a folder of the platform's own.
fn mount_all(builder: &RootBuilder<'_>, folder: &OwnedFd, name: &str) -> Result<(), StepFault> {
    let target = Path::new("/").join(name);
    builder.folder(&target)?;
    let names = doing(format!("list {} of the image", target.display()), names(folder))?;
    names.iter().try_for_each(|name| mount_entry(builder, folder, &target, name))
}

/// Mounts one top-level folder of the image at `image`. If the folder is a link, it is refused: the
/// link would lead to a path of the host.
pub(super) fn folder(
    builder: &RootBuilder<'_>,
    image: &Path,
    bind: &ImageBind,
) -> Result<(), StepFault> {
    let top = open(image)?;
    let copy = || -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let found = openat2(&top, bind.folder.as_str(), flags, Mode::empty(), resolve)?;
        mount::copy_at(&found, Path::new(""))
    };
    let tree = doing(format!("mount {} of the image", bind.folder), copy())?;
    builder.attach(tree, &bind.target)
}

fn open(image: &Path) -> Result<OwnedFd, StepFault> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(CWD, image, flags, Mode::empty()).map_err(Into::into);
    doing(format!("open the image at {}", image.display()), opened)
}

fn names(top: &OwnedFd) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(top)? {
        let entry = entry?;
        match entry.file_name().to_str() {
            Ok("." | "..") => {}
            Ok(name) => names.push(name.to_owned()),
            Err(_) => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a name is not UTF-8"));
            }
        }
    }
    Ok(names)
}

/// Mounts an entry through a descriptor, which was opened without following a link. So the
/// inspected file is the mounted one, even if the folder changes concurrently (CVE-2021-30465).
fn mount_entry(
    builder: &RootBuilder<'_>,
    top: &OwnedFd,
    within: &Path,
    name: &str,
) -> Result<(), StepFault> {
    let target = within.join(name);
    let look = || -> io::Result<(OwnedFd, FileType)> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = openat2(top, name, flags, Mode::empty(), ResolveFlags::BENEATH)?;
        let kind = FileType::from_raw_mode(fstat(&found)?.st_mode);
        Ok((found, kind))
    };
    let step = || format!("mount {name} of the image");
    let (found, kind) = doing(step(), look())?;
    match kind {
        FileType::Symlink => {
            let to = doing(step(), readlinkat(&found, "", Vec::new()).map_err(Into::into))?;
            builder.link(&target, Path::new(&*to.to_string_lossy()))
        }
        FileType::Directory | FileType::RegularFile => {
            let tree = doing(step(), mount::copy_at(&found, Path::new("")))?;
            builder.attach(tree, &target)
        }
        // A device, a pipe or a socket at the top of an image is not needed.
        _ => Ok(()),
    }
}
