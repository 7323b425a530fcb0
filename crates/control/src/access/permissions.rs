//! The state folder, its files and the socket: which users may enter, read and connect.
//!
//! Invariant: the modes do not depend on the umask with which the server is started, and nothing is
//! ever open to others, not even while it is made. Every user who may connect to the socket
//! controls the platform, so only the user of the server may, and the members of one group if the
//! configuration names it.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{Gid, Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use snowmelt_kernel::lock::{Lock, LockMode};
use snowmelt_types::{Code, ErrorReport};

/// The most connections that wait to be accepted.
const MAX_WAITING: i32 = 1024;

/// Names that only a state folder contains: a folder with one of these is closed to others.
const MARKS: [&str; 6] =
    ["state.redb", "server.lock", "snowmelt.log", "packages", "images", "code"];

/// A group of this machine, whose members may use the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserGroup(u32);

impl UserGroup {
    /// Returns the number of the group.
    pub fn id(&self) -> u32 {
        self.0
    }

    /// Finds a group by its number, or by its name in `/etc/group`.
    ///
    /// # Errors
    /// A text that says what is wrong.
    pub fn find(name: &str) -> Result<Self, String> {
        let known = std::fs::read_to_string("/etc/group").unwrap_or_default();
        Self::find_in(name, &known)
    }

    fn find_in(name: &str, known: &str) -> Result<Self, String> {
        if let Ok(number) = name.parse() {
            return Ok(Self(number));
        }
        let fields = known.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let number = fields.filter(|fields| fields.first() == Some(&name)).find_map(|fields| {
            let number: &str = fields.get(2)?;
            number.parse().ok()
        });
        let missing =
            || format!("`{name}` is not a group of this machine (groupadd --system {name})");
        number.map(Self).ok_or_else(missing)
    }
}

/// Folders of the state that members of the group, who may pass through the state folder, may not
/// enter: code, files and rows of all tenants.
const CLOSED: [&str; 13] = [
    "backups", "blocks", "bursts", "code", "exchange", "files", "footers", "images", "known",
    "logs", "raw", "tenants", "udf-logs",
];

/// Makes the state folder, or closes an existing one: only its owner may enter, and members of the
/// group may pass through it to the socket.
///
/// # Errors
/// `SM-0505`, and `SM-0506` where the disk is full.
pub fn state_folder(path: &Path, group: Option<&UserGroup>) -> Result<(), ErrorReport> {
    let mode = if group.is_some() { 0o710 } else { 0o700 };
    let failed = |error: io::Error| failure(path, &error);
    let is_new = !path.exists();
    DirBuilder::new().recursive(true).mode(mode).create(path).map_err(failed)?;
    let found = std::fs::metadata(path).map_err(failed)?;
    if !is_new && !is_ours(path, &found) {
        return Ok(());
    }
    if let Some(group) = group.filter(|group| group.id() != found.gid()) {
        std::os::unix::fs::chown(path, None, Some(group.id())).map_err(failed)?;
    }
    if group.is_some() {
        // Before others make them, with the modes that sandboxes need inside.
        CLOSED.iter().try_for_each(|name| closed_folder(&path.join(name)))?;
    }
    // Without a group, the mode that a group needs may stay.
    match found.mode() & 0o7777 & !(mode | 0o010) {
        0 if group.is_none() => Ok(()),
        _ => set_mode(path, &found, mode).map_err(failed),
    }
}

/// Lets the members of the group, if there is one, pass through a state folder.
pub(crate) fn open_to_group(path: &Path, group: Option<&UserGroup>) -> Result<(), ErrorReport> {
    let Some(group) = group else { return Ok(()) };
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty()).and_then(|folder| {
        rustix::fs::fchown(&folder, None, Some(Gid::from_raw(group.id())))?;
        rustix::fs::fchmod(&folder, Mode::from_raw_mode(0o710))
    });
    opened.map_err(|error| failure(path, &error.into()))
}

/// Makes a folder that only its owner may enter, or closes an existing one. Another user may have put a
/// link there, which is refused.
fn closed_folder(path: &Path) -> Result<(), ErrorReport> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let closed = || -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let folder = rustix::fs::open(path, flags, Mode::empty())?;
        match rustix::fs::fstat(&folder)?.st_mode & 0o077 {
            0 => Ok(()),
            _ => Ok(rustix::fs::fchmod(&folder, Mode::RWXU)?),
        }
    };
    closed().map_err(|error| failure(path, &error))
}

/// Makes a folder that others may pass through, as sandboxes have to.
pub(crate) fn open_folder(path: &Path) -> Result<(), ErrorReport> {
    let made = DirBuilder::new().recursive(true).mode(0o711).create(path);
    made.map_err(|error| failure(path, &error))
}

/// Opens a file for its owner only, and makes it where it is missing.
pub(crate) fn private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(OFlags::NOFOLLOW.bits() as i32);
    let file = options.open(path)?;
    let found = file.metadata()?;
    if found.mode() & 0o7777 != 0o600 && found.uid() == user() {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// Locks a state folder for a server, or for work that must not run beside one.
pub(crate) fn server_lock(state_dir: &Path) -> Result<Lock, ErrorReport> {
    let path = state_dir.join("server.lock");
    // A user who could open it could keep its lock, and no server would ever start again.
    let file = private_file(&path);
    let locked = file.and_then(|file| Lock::attempt(file, LockMode::Exclusive));
    locked.map_err(|error| failure(&path, &error))?.ok_or_else(|| {
        let message = format!("a server is running already with {}", state_dir.display());
        ErrorReport::new(Code::SERVER_RUNNING, message)
            .hint("`snowmelt status` shows it, `snowmelt down` ends it")
    })
}

/// Makes a folder for its owner only, where it is missing.
pub(crate) fn private_folder(path: &Path) -> Result<(), ErrorReport> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| failure(path, &error))
}

/// Makes the folder that several controls share, or closes an existing one: only its owner may enter,
/// which is the user of this process, or the one that it becomes.
///
/// # Errors
/// `SM-0505`; also for a folder of somebody else, who could put code and an authority there.
pub(crate) fn shared_folder(path: &Path, becomes: Option<u32>) -> Result<(), ErrorReport> {
    private_folder(path)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let closed = || -> io::Result<()> {
        let folder = rustix::fs::open(path, flags, Mode::empty())?;
        let found = rustix::fs::fstat(&folder)?;
        if found.st_uid != user() && Some(found.st_uid) != becomes {
            let message = format!("it belongs to the user {}, not to the server's", found.st_uid);
            return Err(io::Error::other(message));
        }
        match found.st_mode & 0o077 {
            0 => Ok(()),
            _ => Ok(rustix::fs::fchmod(&folder, Mode::RWXU)?),
        }
    };
    closed().map_err(|error| failure(path, &error))
}

/// Listens at a socket for its owner, and for the members of the group.
pub(crate) fn listen(path: &Path, group: Option<&UserGroup>) -> Result<UnixListener, ErrorReport> {
    let failed = |error: io::Error| {
        failure(path, &error).hint("a socket's path has at most 107 bytes; see `snowmelt doctor`")
    };
    // The server that left it has ended, because its lock is free.
    let _ = std::fs::remove_file(path);
    let socket = bound(path).map_err(failed)?;
    if let Some(group) = group {
        std::os::unix::fs::chown(path, None, Some(group.id())).map_err(failed)?;
        std::fs::set_permissions(path, Permissions::from_mode(0o660)).map_err(failed)?;
    }
    Ok(UnixListener::from(socket))
}

/// Binds a socket. It has the mode of its descriptor, less the umask: others can never connect.
fn bound(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(0o600))?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    // A umask may have taken the owner's own rights.
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    rustix::net::listen(&socket, MAX_WAITING)?;
    Ok(socket)
}

fn is_ours(path: &Path, found: &Metadata) -> bool {
    let is_empty = || std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    let is_marked = || MARKS.iter().any(|mark| path.join(mark).exists());
    // A folder with the sticky bit that others may write to (`/tmp`) is shared.
    let is_shared = found.mode() & 0o1000 != 0;
    found.uid() == user() && !is_shared && (is_marked() || is_empty())
}

fn set_mode(path: &Path, found: &Metadata, mode: u32) -> io::Result<()> {
    if found.mode() & 0o7777 == mode {
        return Ok(());
    }
    std::fs::set_permissions(path, Permissions::from_mode(mode))
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Makes the error for a path of the state that cannot be used.
pub(crate) fn failure(path: &Path, error: &io::Error) -> ErrorReport {
    let full = error.kind() == io::ErrorKind::StorageFull;
    let code = if full { Code::DISK_FULL } else { Code::STATE };
    ErrorReport::new(code, format!("cannot use {}: {error}", path.display()))
        .hint("choose another place with SNOWMELT_STATE, or see `snowmelt doctor`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_group_has_a_name_or_a_number() {
        let known = "root:x:0:\nsnowmelt:x:987:ada,bob\nbroken\n";
        assert_eq!(UserGroup::find_in("snowmelt", known), Ok(UserGroup(987)));
        assert_eq!(UserGroup::find_in("42", known), Ok(UserGroup(42)));
        assert!(UserGroup::find_in("snow", known).unwrap_err().contains("groupadd"));
    }

    #[test]
    fn a_state_folder_is_closed_even_if_it_was_open() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("deep/state");
        state_folder(&state, None).unwrap();
        assert_eq!(mode(&state), 0o700);
        std::fs::write(state.join("state.redb"), "").unwrap();
        std::fs::set_permissions(&state, Permissions::from_mode(0o711)).unwrap();
        state_folder(&state, None).unwrap();
        assert_eq!(mode(&state), 0o700);
        let own = UserGroup(rustix::process::getegid().as_raw());
        state_folder(&state, Some(&own)).unwrap();
        assert_eq!(mode(&state), 0o710);
    }

    /// A user may name `/tmp`.
    #[test]
    fn a_folder_of_another_owner_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
        state_folder(folder.path(), None).unwrap();
        assert_eq!(mode(folder.path()), 0o1777);
    }

    #[test]
    fn a_private_file_is_closed_even_if_it_was_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "kept").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        private_file(&path).unwrap();
        assert_eq!((mode(&path), std::fs::read(&path).unwrap()), (0o600, b"kept".to_vec()));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(private_file(&link).is_err(), "a link may lead anywhere");
    }

    #[test]
    fn a_socket_is_bound_with_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        rustix::fs::fchmod(&socket, Mode::from_raw_mode(0o600)).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        assert_eq!(mode(&path), 0o600, "the kernel gives a socket the mode of its descriptor");
        drop(socket);
        drop(listen(&path, None).unwrap());
        assert_eq!(mode(&path), 0o600);
        let own = UserGroup(rustix::process::getegid().as_raw());
        drop(listen(&path, Some(&own)).unwrap());
        assert_eq!(mode(&path), 0o660);
    }
}
