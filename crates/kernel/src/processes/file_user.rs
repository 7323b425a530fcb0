//! Files that are opened with the rights of another user than that of this process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::{fs, io};

use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::process::{DumpableBehavior, Gid, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs, set_thread_groups,
};
use serde::{Deserialize, Serialize};

use super::namespace::{flags, unshare};
use super::process::{CAP_DAC_READ_SEARCH, CAP_SETGID, CAP_SETUID, keep_only_capabilities};
use crate::mount::attributes::unescape;

/// A user of this machine, as the kernel knows a process: its number, group and further groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileUser {
    /// The number of the user.
    pub user: u32,
    /// The number of the user's group.
    pub group: u32,
    /// The numbers of the further groups.
    pub groups: Vec<u32>,
    /// The connection of the user, by which the kernel proves who it is to another process of this
    /// machine; `None` where this process needs no proof.
    #[serde(skip)]
    pub connection: Option<UserConnection>,
}

impl FileUser {
    /// Returns whether there is a proof for another process, because this process is not root.
    pub fn is_proven(&self) -> bool {
        self.connection.is_some()
    }
}

/// An open connection of a user of this machine.
#[derive(Clone, Debug)]
pub struct UserConnection(Arc<OwnedFd>);

impl UserConnection {
    /// Keeps a copy of a connection.
    ///
    /// # Errors
    /// `EMFILE` if this process has too many open files.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        Ok(Self(Arc::new(socket.as_fd().try_clone_to_owned()?)))
    }
}

impl AsFd for UserConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl PartialEq for UserConnection {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for UserConnection {}

/// How often file systems of users are hidden that appear meanwhile.
const MAX_ROUNDS: usize = 8;

type FileWork = Box<dyn FnOnce() + Send>;

/// A thread with the rights of a user to files, and without any capability.
///
/// Its mount namespace has neither of these: file systems that users have mounted (FUSE), which could
/// make the thread wait for ever, and `/proc`, which lets the threads of one process read each other.
///
/// Only the user of its file accesses is another one (`setfsuid`): with another user of its own, the
/// thread could be killed by that user, and the whole process with it.
#[derive(Debug)]
pub struct FileUserThread {
    work: Sender<FileWork>,
}

impl FileUserThread {
    /// Starts a thread, which ends when the value is dropped.
    ///
    /// # Errors
    /// `EPERM` if this process may not take the rights of other users.
    pub fn start(user: FileUser) -> io::Result<Self> {
        let (work, works) = channel::<FileWork>();
        let (began, begin) = sync_channel(1);
        let thread = std::thread::Builder::new().name("file-user".to_owned());
        thread.spawn(move || {
            if is_ready(&user, &began) {
                works.iter().for_each(|work| work());
            }
        })?;
        begin.recv().map_err(io::Error::other)??;
        Ok(Self { work })
    }

    /// Runs a function on the thread, and waits for its result.
    ///
    /// # Errors
    /// An error if an earlier function panicked, and the thread has ended.
    pub fn run<T: Send + 'static>(
        &self,
        function: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let (done, result) = sync_channel(1);
        // Nobody waits for the result if the receiver is gone.
        let work: FileWork = Box::new(move || drop(done.send(function())));
        self.work.send(work).map_err(|_| io::Error::other("the thread has ended"))?;
        result.recv().map_err(io::Error::other)
    }
}

/// Gives this single-threaded process of root the rights of a user to files for good, and the view of
/// the file system of a [`FileUserThread`]. Root keeps the right to read all files, and nothing else.
/// As for a thread, only the user of file accesses is another one: the user could stop the process.
///
/// # Errors
/// The error of the first step that failed; the process must end then.
pub fn become_file_user(user: &FileUser) -> io::Result<()> {
    hide_mounts(user)?;
    keep_only_capabilities(&[CAP_DAC_READ_SEARCH, CAP_SETGID, CAP_SETUID])?;
    set_no_new_privs(true)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let all_files = CapabilitySet::DAC_READ_SEARCH;
    take_rights(user, if user.user == 0 { all_files } else { CapabilitySet::empty() })
}

/// Prepares the calling thread, and reports it.
fn is_ready(user: &FileUser, began: &SyncSender<io::Result<()>>) -> bool {
    let result = hide_mounts(user).and_then(|()| take_rights(user, CapabilitySet::empty()));
    let is_ready = result.is_ok();
    began.send(result).is_ok() && is_ready
}

/// Gives the calling thread a mount namespace without `/proc` and without file systems of users. Later
/// mounts do not appear in it.
fn hide_mounts(user: &FileUser) -> io::Result<()> {
    unshare(flags::MOUNT)?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    for _ in 0..MAX_ROUNDS {
        let list = fs::read_to_string("/proc/thread-self/mountinfo")?;
        let hidden = if user.user == 0 { is_of_user } else { is_closed };
        let mut of_users: Vec<PathBuf> = mounts(&list, hidden).collect();
        // Outer ones first: the way to an inner one would lead through what its user answers.
        of_users.sort_by_key(|path| path.components().count());
        // Users may remove and rename the folders meanwhile: the next list says what is left.
        for path in &of_users {
            let _ = hide(path);
        }
        if of_users.is_empty() {
            // Last, because the lists are there.
            for path in mounts(&list, |kind, _| kind == "proc") {
                // Those below another one are gone with it.
                let _ = hide(&path);
            }
            return match Path::new("/proc/self").exists() {
                true => Err(io::Error::other("/proc cannot be hidden")),
                false => Ok(()),
            };
        }
    }
    Err(io::Error::other("file systems of users cannot be hidden"))
}

fn hide(mount: &Path) -> rustix::io::Result<()> {
    unmount(mount, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
}

/// The paths of those mounts of a list (`mountinfo`, proc(5)) whose kind and options are wanted.
fn mounts(list: &str, is_wanted: fn(&str, &str) -> bool) -> impl Iterator<Item = PathBuf> {
    list.lines().filter_map(move |line| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut fields = file_system.split(' ');
        let kind = fields.next()?;
        let path = mount.split(' ').nth(4)?;
        is_wanted(kind, fields.nth(1).unwrap_or_default()).then(|| unescape(path))
    })
}

/// Whether a file system is answered by a program of a user other than root.
fn is_of_user(kind: &str, options: &str) -> bool {
    let of_user = |option: &str| option.strip_prefix("user_id=").is_some_and(|user| user != "0");
    is_fuse(kind) && options.split(',').any(of_user)
}

/// Whether a file system is closed to users other than root: one of a user, or one of root's own. The
/// kernel lets a process in whose own number is root's, which that of a file user still is.
fn is_closed(kind: &str, options: &str) -> bool {
    let is_private = || !options.split(',').any(|option| option == "allow_other");
    is_of_user(kind, options) || (is_fuse(kind) && is_private())
}

fn is_fuse(kind: &str) -> bool {
    kind == "fuse" || kind == "fuseblk" || kind.starts_with("fuse.")
}

fn take_rights(user: &FileUser, kept: CapabilitySet) -> io::Result<()> {
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
    let inheritable = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{File, Permissions, create_dir, read_to_string, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    fn user(user: u32, groups: &[u32]) -> FileUser {
        FileUser { user, group: user, groups: groups.to_vec(), connection: None }
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
        let number = thread.run(|| rustix::thread::gettid().as_raw_nonzero()).unwrap();
        let status = read_to_string(format!("/proc/self/task/{number}/status")).unwrap();
        let line = |name: &str| status.lines().find(|line| line.starts_with(name)).unwrap();
        let numbers = |name| line(name).split_whitespace().skip(1).collect::<Vec<_>>();
        // Real, effective, saved, of files.
        assert_eq!(numbers("Uid:"), ["0", "0", "0", "4321"]);
        assert_eq!(numbers("Groups:"), ["4400"]);
        assert_eq!(numbers("CapEff:"), ["0000000000000000"]);
        assert!(File::open(&path).is_ok(), "this thread is still root");
        assert!(thread.run(|| Path::new("/proc/self").exists()).is_ok_and(|exists| !exists));
        assert!(Path::new("/proc/self").exists());
        assert!(thread.run(|| panic!("a test")).is_err());
        assert!(thread.run(|| ()).is_err(), "it has ended");
    }

    /// Nobody answers the requests of the file system: whoever looks into it waits for ever.
    #[test]
    fn a_file_system_of_a_user_is_not_entered() {
        use rustix::mount::{MountFlags, mount};
        use std::os::fd::AsRawFd;

        let folder = tempfile::tempdir().unwrap();
        set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let inside = folder.path().join("fuse with space");
        create_dir(&inside).unwrap();
        let device = File::options().read(true).write(true).open("/dev/fuse").unwrap();
        let number = device.as_raw_fd();
        let options = format!("fd={number},rootmode=40000,user_id=4321,group_id=4321\0");
        let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes()).unwrap();
        mount("test", &inside, "fuse", MountFlags::NOSUID | MountFlags::NODEV, options).unwrap();
        let thread = FileUserThread::start(user(4321, &[])).unwrap();
        let path = inside.clone();
        let found = thread.run(move || (path.is_dir(), path.join("file").exists())).unwrap();
        // The request of the file system's start is not answered either.
        unmount(&inside, UnmountFlags::DETACH).unwrap();
        assert_eq!(found, (true, false));
    }

    #[test]
    fn mounts_of_users_are_told_from_others() {
        let list = |kind: &str, options: &str| {
            format!(r"36 35 0:52 / /home/a\040b/x rw shared:1 - {kind} sshfs {options}")
        };
        let found = |kind: &str, options: &str| mounts(&list(kind, options), is_of_user).next();
        let path = Some(PathBuf::from("/home/a b/x"));
        assert_eq!(found("fuse.sshfs", "rw,user_id=1000,group_id=1000"), path);
        assert_eq!(found("fuse", "rw,user_id=1000"), path);
        for (kind, options) in
            [("fuse.s3fs", "rw,user_id=0,group_id=0"), ("ext4", "rw"), ("fuse", ""), ("proc", "rw")]
        {
            assert_eq!(found(kind, options), None, "{kind} {options}");
        }
        // What root keeps for itself is closed to others as well.
        let found = |kind: &str, options: &str| mounts(&list(kind, options), is_closed).next();
        assert_eq!(found("fuse.s3fs", "rw,user_id=0,group_id=0"), path);
        assert_eq!(found("fuse.sshfs", "rw,user_id=1000,group_id=1000,allow_other"), path);
        assert_eq!(found("fuse.s3fs", "rw,user_id=0,group_id=0,allow_other"), None);
        assert_eq!(found("ext4", "rw"), None);
    }
}
