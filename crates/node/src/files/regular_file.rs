//! The opening of files whose paths others can write to.
//!
//! Invariant: opening a file never waits. A pipe that was put in the place of a file would keep a
//! thread of the server waiting until somebody writes to it.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat};

/// The flags with which a file is opened, so that opening it never waits.
pub(crate) const FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Opens a regular file for reading.
///
/// # Errors
/// The system's error; an error of the kind `InvalidInput` for anything else at the path.
pub fn open(path: &Path) -> Result<File> {
    let opened = rustix::fs::open(path, FLAGS, Mode::empty())?;
    match is_regular(&opened)? {
        true => Ok(opened.into()),
        false => Err(Error::new(ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// Returns whether an open file is a regular file.
pub(crate) fn is_regular(file: &OwnedFd) -> Result<bool> {
    Ok(FileType::from_raw_mode(fstat(file)?.st_mode) == FileType::RegularFile)
}

/// Returns whether an open file is below a folder, wherever links led to it: `false` if there is no
/// such folder, `true` if the kernel does not say where the file is.
pub fn is_below(file: &File, folder: &Path) -> bool {
    let Ok(folder) = folder.canonicalize() else { return false };
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::read_link(link).map_or(true, |real| real.starts_with(folder))
}

/// Makes a pipe at a path, to which nobody writes.
#[cfg(test)]
fn make_pipe(path: &Path) {
    use rustix::fs::{CWD, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_file_is_below_a_folder_through_links() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("in");
        let outside = folder.path().join("out");
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(inside.join("a"), "").unwrap();
        std::os::unix::fs::symlink(inside.join("a"), &outside).unwrap();
        assert!(is_below(&open(&outside).unwrap(), &inside));
        std::fs::remove_file(&outside).unwrap();
        std::fs::write(&outside, "").unwrap();
        assert!(!is_below(&open(&outside).unwrap(), &inside));
        assert!(!is_below(&open(&outside).unwrap(), &folder.path().join("none")));
    }

    #[test]
    fn regular_files_are_opened_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "text").unwrap();
        let mut text = String::new();
        open(&path).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        assert_eq!(open(folder.path()).unwrap_err().kind(), ErrorKind::InvalidInput);
        let pipe = folder.path().join("pipe");
        make_pipe(&pipe);
        assert_eq!(open(&pipe).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(open(&folder.path().join("none")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
