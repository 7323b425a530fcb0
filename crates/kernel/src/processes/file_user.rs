//! Files that are opened with the rights of another user than that of this process.

use std::io;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};

use rustix::process::Gid;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_thread_groups};
use serde::{Deserialize, Serialize};

/// A user of this machine, as the kernel knows a process: its number, group and further groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileUser {
    /// The number of the user.
    pub user: u32,
    /// The number of the user's group.
    pub group: u32,
    /// The numbers of the further groups.
    pub groups: Vec<u32>,
}

type Work = Box<dyn FnOnce() + Send>;

/// A thread with the rights of a user to files, and without any capability.
///
/// Only the user of its file accesses is another one (`setfsuid`): with another user of its own, the
/// thread could be killed by that user, and the whole process with it.
#[derive(Debug)]
pub struct FileUserThread {
    work: Sender<Work>,
}

impl FileUserThread {
    /// Starts a thread, which ends when the value is dropped.
    ///
    /// # Errors
    /// This process may not take the rights of other users (`EPERM`).
    pub fn start(user: FileUser) -> io::Result<Self> {
        let (work, works) = channel::<Work>();
        let (began, begin) = sync_channel(1);
        let thread = std::thread::Builder::new().name("file-user".to_owned());
        thread.spawn(move || {
            if taken(&user, &began) {
                works.iter().for_each(|work| work());
            }
        })?;
        begin.recv().map_err(io::Error::other)??;
        Ok(Self { work })
    }

    /// Runs a function on the thread, and waits for its result.
    ///
    /// # Errors
    /// An earlier function panicked, and the thread has ended.
    pub fn run<T: Send + 'static>(
        &self,
        function: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let (done, result) = sync_channel(1);
        // Nobody waits for the result if the receiver is gone.
        let work: Work = Box::new(move || drop(done.send(function())));
        self.work.send(work).map_err(|_| io::Error::other("the thread has ended"))?;
        result.recv().map_err(io::Error::other)
    }
}

/// Takes the rights of a user for the calling thread, and reports it.
fn taken(user: &FileUser, began: &SyncSender<io::Result<()>>) -> bool {
    let result = take_rights(user);
    let is_taken = result.is_ok();
    began.send(result).is_ok() && is_taken
}

fn take_rights(user: &FileUser) -> io::Result<()> {
    let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
    // This call, unlike that of the C library, changes the calling thread only.
    set_thread_groups(&groups)?;
    // SAFETY: the calls take numbers and change the calling thread only. They return the number
    // before, and no error; a number that no user has only asks.
    let has_changed = unsafe {
        libc::setfsgid(user.group);
        libc::setfsuid(user.user);
        let group = libc::setfsgid(libc::gid_t::MAX);
        let of = libc::setfsuid(libc::uid_t::MAX);
        (group as u32, of as u32) == (user.group, user.user)
    };
    if !has_changed {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // The capabilities to override permissions would stay in a server that is not root.
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{File, Permissions, create_dir, read_to_string, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    fn user(user: u32, groups: &[u32]) -> FileUser {
        FileUser { user, group: user, groups: groups.to_vec() }
    }

    fn open_as(of: FileUser, path: &std::path::Path) -> io::Result<File> {
        let path = path.to_owned();
        FileUserThread::start(of).unwrap().run(move || File::open(path)).unwrap()
    }

    #[test]
    fn files_are_opened_with_the_rights_of_user_and_groups() {
        let folder = tempfile::tempdir().unwrap();
        set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let file = |name: &str, owner: u32, group: u32, mode: u32| {
            let path = folder.path().join(name);
            write(&path, "x").unwrap();
            chown(&path, Some(owner), Some(group)).unwrap();
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path
        };
        let of_root = file("root", 0, 0, 0o600);
        let own = file("own", 4321, 4321, 0o600);
        let of_group = file("group", 0, 4400, 0o640);
        let of_all = file("all", 0, 0, 0o644);
        // An entry of the owner counts before that of all.
        let locked = file("locked", 4321, 4321, 0o044);
        let opens = |path| open_as(user(4321, &[4400]), path).is_ok();
        assert!(!opens(&of_root) && opens(&own) && opens(&of_group) && opens(&of_all));
        assert!(!opens(&locked));
        assert!(open_as(user(4321, &[]), &of_group).is_err());
        assert!(open_as(user(4322, &[4400]), &own).is_err());
        let closed = folder.path().join("closed");
        create_dir(&closed).unwrap();
        write(closed.join("inside"), "x").unwrap();
        set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
        assert!(!opens(&closed.join("inside")));
    }

    #[test]
    fn other_threads_keep_their_rights_and_the_thread_its_user() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own");
        write(&path, "x").unwrap();
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let thread = FileUserThread::start(user(4321, &[4400])).unwrap();
        let status = thread.run(|| read_to_string("/proc/thread-self/status").unwrap()).unwrap();
        let line = |name: &str| status.lines().find(|line| line.starts_with(name)).unwrap();
        let numbers = |name| line(name).split_whitespace().skip(1).collect::<Vec<_>>();
        // Real, effective, saved, of files.
        assert_eq!(numbers("Uid:"), ["0", "0", "0", "4321"]);
        assert_eq!(numbers("Groups:"), ["4400"]);
        assert_eq!(numbers("CapEff:"), ["0000000000000000"]);
        assert!(File::open(&path).is_ok(), "this thread is still root");
        assert!(thread.run(|| panic!("a test")).is_err());
        assert!(thread.run(|| ()).is_err(), "it has ended");
    }
}
