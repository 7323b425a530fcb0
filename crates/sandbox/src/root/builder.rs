//! The writable initial state of a template: folders, files, links and binds, by paths inside it.
//!
//! Invariant: a path is resolved with the template as its root (`RESOLVE_IN_ROOT`), so that a link
//! inside cannot lead to a path of the host.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    CWD, FileType, Mode, OFlags, ResolveFlags, fstat, major, minor, mkdirat, openat, openat2,
    symlinkat,
};
use rustix::io::Errno;
use snowmelt_kernel::mount::{self, Attributes};

use crate::disabled_defences::{Defence, is_disabled};
use crate::fault::{StepFault, doing};

/// A template that is being assembled.
pub(crate) struct RootBuilder<'a> {
    top: BorrowedFd<'a>,
}

impl<'a> RootBuilder<'a> {
    /// Starts with the empty file system whose root is `top`.
    pub fn new(top: BorrowedFd<'a>) -> Self {
        Self { top }
    }

    /// Makes a folder with its parents, mode 0755, if it does not exist.
    pub fn folder(&self, path: &Path) -> Result<OwnedFd, StepFault> {
        doing(format!("make the folder {}", path.display()), self.ensure_folder(path))
    }

    /// Makes a file, mode 0444.
    pub fn file(&self, path: &Path, content: &[u8]) -> Result<(), StepFault> {
        let write = || -> io::Result<()> {
            let (folder, name) = self.ensure_parent(path)?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let file = openat(folder, name, flags, Mode::from_raw_mode(0o444))?;
            io::Write::write_all(&mut std::fs::File::from(file), content)
        };
        doing(format!("make the file {}", path.display()), write())
    }

    /// Makes a symbolic link.
    pub fn link(&self, path: &Path, to: &Path) -> Result<(), StepFault> {
        let link = || -> io::Result<()> {
            let (folder, name) = self.ensure_parent(path)?;
            Ok(symlinkat(to, folder, name)?)
        };
        doing(format!("make the link {}", path.display()), link())
    }

    /// Bind-mounts a folder or file of the host at `target`, inert.
    pub fn bind(&self, source: &Path, target: &Path) -> Result<(), StepFault> {
        let tree = doing(format!("mount {}", source.display()), mount::copy(source))?;
        self.attach(tree, target)
    }

    /// Attaches a detached tree at `target`, inert.
    pub fn attach(&self, tree: OwnedFd, target: &Path) -> Result<(), StepFault> {
        let attach = || -> io::Result<()> {
            let target = self.mount_point(target, is_folder(&tree)?)?;
            if is_disabled(Defence::Inert) {
                return mount::attach(&tree, &target);
            }
            mount::attach_with(&tree, &target, mount::inert())
        };
        doing(format!("mount {}", target.display()), attach())
    }

    /// Bind-mounts a device of the host, if it is the character device of that number: a file in
    /// the place of a device is refused (CVE-2025-31133).
    pub fn device(&self, path: &Path, number: (u32, u32)) -> Result<(), StepFault> {
        let attach = || -> io::Result<()> {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let node = openat(CWD, path, flags, Mode::empty())?;
            let stat = fstat(&node)?;
            let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
            if !is_device || (major(stat.st_rdev), minor(stat.st_rdev)) != number {
                return Err(io::Error::from_raw_os_error(Errno::NODEV.raw_os_error()));
            }
            let tree = mount::copy_at(&node, Path::new(""))?;
            let attributes = Attributes::MOUNT_ATTR_RDONLY
                | Attributes::MOUNT_ATTR_NOSUID
                | Attributes::MOUNT_ATTR_NOEXEC;
            mount::attach_with(&tree, &self.mount_point(path, false)?, attributes)
        };
        doing(format!("mount the device {}", path.display()), attach())
    }

    fn mount_point(&self, path: &Path, folder: bool) -> io::Result<OwnedFd> {
        if folder {
            return self.ensure_folder(path);
        }
        if let Ok(there) = self.open(&inside(path)?, OFlags::empty()) {
            return Ok(there);
        }
        let (parent, name) = self.ensure_parent(path)?;
        let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        openat(parent, name, flags, Mode::from_raw_mode(0o444))?;
        Ok(self.open(&inside(path)?, OFlags::empty())?)
    }

    fn ensure_parent<'p>(&self, path: &'p Path) -> io::Result<(OwnedFd, &'p std::ffi::OsStr)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        Ok((self.ensure_folder(parent)?, name))
    }

    fn ensure_folder(&self, path: &Path) -> io::Result<OwnedFd> {
        let mut reached = PathBuf::from(".");
        let mut folder = self.top.try_clone_to_owned()?;
        for part in inside(path)?.iter() {
            reached.push(part);
            folder = match self.open(&reached, OFlags::DIRECTORY) {
                Err(Errno::NOENT) => {
                    mkdirat(&folder, part, Mode::from_raw_mode(0o755))?;
                    self.open(&reached, OFlags::DIRECTORY)?
                }
                opened => opened?,
            };
        }
        Ok(folder)
    }

    fn open(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
        let within = if is_disabled(Defence::OwnTree) {
            ResolveFlags::empty()
        } else {
            ResolveFlags::IN_ROOT
        };
        openat2(self.top, path, flags, Mode::empty(), within)
    }
}

fn is_folder(tree: impl AsFd) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(fstat(tree)?.st_mode) == FileType::Directory)
}

/// Returns a path without its leading `/`. A path with `..` is refused.
fn inside(path: &Path) -> io::Result<PathBuf> {
    let mut parts = path.components();
    let absolute = parts.next() == Some(Component::RootDir);
    let rest: PathBuf = parts.as_path().into();
    let plain = rest.components().all(|part| matches!(part, Component::Normal(_)));
    if absolute && plain {
        return Ok(rest);
    }
    Err(io::Error::from_raw_os_error(Errno::INVAL.raw_os_error()))
}
