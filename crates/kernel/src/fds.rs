//! Descriptors of this process.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Has every descriptor from `first` on closed by the next successful exec.
pub fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: only sets flags of descriptors; no memory is passed.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if result == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        // The flag came with Linux 5.11.
        error if error.kind() == io::ErrorKind::InvalidInput => close_each_on_exec_from(first),
        error => Err(error),
    }
}

fn close_each_on_exec_from(first: u32) -> io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let Some(number) = number.filter(|number| *number >= first) else { continue };
        // SAFETY: only sets the flag of a descriptor; one that is closed meanwhile gives an error,
        // which is none here.
        unsafe { libc::fcntl(number as libc::c_int, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(())
}

/// Closes every descriptor from `first` on. For a process that has just begun and owns none of
/// them: whoever started it may have left some open by mistake.
pub fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: no memory is passed; that nobody owns what is closed is the caller's promise, given
    // by calling this before the process opens anything.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A copy of a descriptor that this process was started with, closed on exec. `EBADF` if there is
/// none of that number.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes a number and gives a new descriptor or an error; no memory is passed.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it for us, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// A copy of `source` at a number where nothing is open, closed on exec. As [`place`], for a
/// process that is about to exec.
pub fn copy_at(source: BorrowedFd<'_>, target: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: `source` is open by its borrow; that nobody owns `target` is the caller's promise.
    let copy = unsafe { libc::dup3(source.as_raw_fd(), target, libc::O_CLOEXEC) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it for us, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Makes `target` a copy of `source` that stays open over exec. What `target` was before is
/// closed, so this is for a process that is about to exec and owns no Rust value for `target`.
pub fn place(source: BorrowedFd<'_>, target: RawFd) -> io::Result<()> {
    if source.as_raw_fd() == target {
        // SAFETY: clears the close-on-exec flag of a descriptor that the borrow keeps open.
        let result = unsafe { libc::fcntl(target, libc::F_SETFD, 0) };
        return if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    }
    // SAFETY: `source` is open by its borrow; that nobody owns `target` is the caller's promise,
    // given by calling this only between clone and exec.
    let result = unsafe { libc::dup2(source.as_raw_fd(), target) };
    if result == target { Ok(()) } else { Err(io::Error::last_os_error()) }
}
