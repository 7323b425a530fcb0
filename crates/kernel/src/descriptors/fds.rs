//! Descriptors of this process.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::thread;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::packet;

/// Makes the next successful exec close every descriptor from `first` on.
pub fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: only sets flags of descriptors; no memory is passed.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if result == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        // The flag exists since Linux 5.11.
        error if error.kind() == io::ErrorKind::InvalidInput => close_each_on_exec_from(first),
        error => Err(error),
    }
}

fn close_each_on_exec_from(first: u32) -> io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let Some(number) = number.filter(|number| *number >= first) else { continue };
        // SAFETY: only sets the flag of a descriptor; one that is closed meanwhile gives an error,
        // which is ignored.
        unsafe { libc::fcntl(number as libc::c_int, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(())
}

/// Raises the soft limit of open files to the hard one. The usual low soft limit is for programs
/// that wait with `select`, which this platform does not use.
pub fn raise_limit() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?)
}

/// Closes every descriptor from `first` on. For a process that has just started and owns none of
/// them: its parent may have left some open by mistake.
pub fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: no memory is passed; that the closed descriptors have no owner is the caller's
    // promise, given by calling this before the process opens anything.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A copy of a descriptor that this process was started with, closed on exec. `EBADF` if there is
/// no descriptor of that number.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes a number and returns a new descriptor or an error; no memory is passed.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// A copy of `source` at an unused number, closed on exec. As [`duplicate_to`], for a process that
/// is about to exec.
pub fn copy_at(source: BorrowedFd<'_>, target: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: `source` is open by its borrow; that `target` has no owner is the caller's promise.
    let copy = unsafe { libc::dup3(source.as_raw_fd(), target, libc::O_CLOEXEC) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Makes `target` a copy of `source` that stays open over exec. The old `target` is closed, so this
/// is for a process that is about to exec and owns no Rust value for `target`.
pub fn duplicate_to(source: BorrowedFd<'_>, target: RawFd) -> io::Result<()> {
    if source.as_raw_fd() == target {
        // SAFETY: clears the close-on-exec flag of a descriptor that the borrow keeps open.
        let result = unsafe { libc::fcntl(target, libc::F_SETFD, 0) };
        return if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    }
    // SAFETY: `source` is open by its borrow; that `target` has no owner is the caller's promise,
    // given by calling this only between clone and exec.
    let result = unsafe { libc::dup2(source.as_raw_fd(), target) };
    if result == target { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Runs `work` in a thread with its own descriptor table: the standard descriptors and `kept`,
/// which has the same number there (`/proc/thread-self/fd`). The descriptor that it returns is
/// moved to the caller's table.
///
/// For work that waits in the kernel for a service of this very process, where not even a kill ends
/// the wait: such a thread holds nothing open that keeps the service from ending. `work` must not
/// use descriptors other than `kept`, its own, and the standard ones.
pub fn with_own_table<E: Send>(
    kept: BorrowedFd<'_>,
    work: impl FnOnce() -> Result<OwnedFd, E> + Send,
) -> io::Result<Result<OwnedFd, E>> {
    let (ours, theirs) = packet::pair()?;
    let in_thread = || -> io::Result<Result<(), E>> {
        keep_only([kept, theirs.as_fd()])?;
        let made = match work() {
            Ok(made) => made,
            Err(error) => return Ok(Err(error)),
        };
        packet::send(&theirs, b"here", &[made.as_fd()]).map(Ok)
    };
    let joined = thread::scope(|scope| {
        thread::Builder::new().spawn_scoped(scope, in_thread).map(|thread| thread.join())
    })?;
    match joined.map_err(|_| io::Error::other("the work panicked"))?? {
        Err(error) => Ok(Err(error)),
        Ok(()) => {
            let made = packet::receive(&ours, &mut [0; 8])?.fds.pop();
            made.map(Ok).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
        }
    }
}

/// Gives this thread its own descriptor table, with only these and the standard descriptors.
fn keep_only(mut kept: [BorrowedFd<'_>; 2]) -> io::Result<()> {
    // SAFETY: the thread gets a copy of the table; no memory is passed or changed.
    if unsafe { libc::unshare(libc::CLONE_FILES) } != 0 {
        return Err(io::Error::last_os_error());
    }
    kept.sort_by_key(AsRawFd::as_raw_fd);
    let mut first = 3;
    for end in kept.map(|kept| kept.as_raw_fd() as u32).into_iter().chain([u32::MAX]) {
        // SAFETY: closes descriptors only in the copy; those of other threads stay open in their
        // table. No memory is passed.
        if first < end && unsafe { libc::syscall(libc::SYS_close_range, first, end - 1, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
        first = first.max(end.saturating_add(1));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Read;

    use super::*;

    fn open() -> Vec<String> {
        let listed = fs::read_dir("/proc/thread-self/fd").unwrap();
        listed
            .map(|entry| fs::read_link(entry.unwrap().path()))
            .filter_map(|target| Some(target.ok()?.to_str()?.to_owned()))
            .collect()
    }

    #[test]
    fn a_thread_with_its_own_table_has_only_the_kept_descriptor_and_returns_its_own() {
        let kept = File::open("/proc/self/maps").unwrap();
        let other = File::open("/proc/self/stat");
        let other = other.unwrap();
        let made = with_own_table(kept.as_fd(), || {
            let open = open();
            assert!(open.iter().any(|target| target.ends_with("/maps")), "{open:?}");
            assert!(!open.iter().any(|target| target.ends_with("/stat")), "{open:?}");
            File::open("/proc/self/comm").map(OwnedFd::from)
        });
        let mut text = String::new();
        File::from(made.unwrap().unwrap()).read_to_string(&mut text).unwrap();
        assert!(!text.is_empty());
        assert!((&kept).read(&mut [0; 8]).is_ok() && (&other).read(&mut [0; 8]).is_ok());
    }

    #[test]
    fn errors_and_panics_of_the_thread_are_returned() {
        let kept = File::open("/dev/null").unwrap();
        let failed = with_own_table(kept.as_fd(), || Err::<OwnedFd, _>("no")).unwrap();
        assert_eq!(failed.unwrap_err(), "no");
        let panicked =
            with_own_table(kept.as_fd(), || -> Result<OwnedFd, ()> { panic!("as it should") });
        assert!(panicked.is_err());
    }
}
