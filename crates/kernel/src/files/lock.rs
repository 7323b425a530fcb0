//! Locks between processes on open files and folders (`flock`), which end with their holder.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, retry_on_intr};

/// The number of processes that may hold a lock at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Any number of shared holders, while there is no exclusive one.
    Shared,
    /// A single process.
    Exclusive,
}

/// Opens a file to lock it; creates it if it is missing.
pub fn open(path: &Path) -> io::Result<File> {
    File::options().create(true).truncate(false).write(true).open(path)
}

/// A locked file or folder; dropping it releases the lock.
///
/// Invariant: it is unlocked explicitly, because closing the file is not enough. A child that
/// another thread has forked has the file open too until its exec, and would keep the lock that
/// long.
#[derive(Debug)]
pub struct Lock {
    file: File,
    unlocks: bool,
}

impl Lock {
    /// Locks an open file; waits until it is free.
    pub fn wait(file: File, share: LockMode) -> io::Result<Self> {
        let operation = match share {
            LockMode::Shared => FlockOperation::LockShared,
            LockMode::Exclusive => FlockOperation::LockExclusive,
        };
        retry_on_intr(|| flock(&file, operation))?;
        Ok(Self::of(file))
    }

    /// Locks an open file without waiting; `None` if it is not free.
    pub fn attempt(file: File, share: LockMode) -> io::Result<Option<Self>> {
        let operation = match share {
            LockMode::Shared => FlockOperation::NonBlockingLockShared,
            LockMode::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        match retry_on_intr(|| flock(&file, operation)) {
            Ok(()) => Ok(Some(Self::of(file))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn of(file: File) -> Self {
        Self { file, unlocks: true }
    }

    /// Keeps the lock until all copies of its descriptor are closed. It is not released explicitly,
    /// because other processes get the descriptor: the lock ends when the last of them has closed
    /// it.
    #[must_use]
    pub fn until_closed(mut self) -> Self {
        self.unlocks = false;
        self
    }

    /// The file that is locked.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl AsFd for Lock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.unlocks {
            // If it cannot be unlocked, it is released when the file is closed.
            let _ = flock(&self.file, FlockOperation::Unlock);
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, memfd_create};
    use std::os::fd::AsRawFd;

    use super::*;

    /// Opens the same file several times: each open file locks for itself.
    fn opened<const COUNT: usize>() -> [File; COUNT] {
        let file = memfd_create("lock", MemfdFlags::CLOEXEC).unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        std::array::from_fn(|_| File::open(&path).unwrap())
    }

    #[test]
    fn a_lock_has_one_exclusive_holder_or_many_shared_ones() {
        let [one, two, three, four, five] = opened();
        let exclusive = Lock::wait(one, LockMode::Exclusive).unwrap();
        assert!(Lock::attempt(two, LockMode::Shared).unwrap().is_none());
        drop(exclusive);
        let shared = Lock::attempt(three, LockMode::Shared).unwrap();
        assert!(shared.is_some() && Lock::attempt(four, LockMode::Shared).unwrap().is_some());
        assert!(Lock::attempt(five, LockMode::Exclusive).unwrap().is_none());
    }

    #[test]
    fn it_is_free_when_it_is_dropped_although_a_child_has_the_file_open() {
        let [one, two] = opened();
        let lock = Lock::wait(one, LockMode::Exclusive).unwrap();
        let of_a_child = lock.file().try_clone().unwrap();
        drop(lock);
        assert!(Lock::attempt(two, LockMode::Exclusive).unwrap().is_some());
        drop(of_a_child);
    }

    #[test]
    fn a_lock_until_closed_is_held_by_the_other_process_too() {
        let [one, two, three] = opened();
        let lock = Lock::wait(one, LockMode::Exclusive).unwrap().until_closed();
        let of_another = lock.file().try_clone().unwrap();
        drop(lock);
        assert!(Lock::attempt(two, LockMode::Exclusive).unwrap().is_none());
        drop(of_another);
        // Children that other tests have just forked may still have the file open.
        Lock::wait(three, LockMode::Exclusive).unwrap();
    }
}
