//! The user that a server of root becomes, and what it hands over to that user before.
//!
//! Invariant: the user owns the state folder with all that is in it when the server gives up root;
//! nothing else of the machine changes its owner.

use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Stat, Uid, chownat, fchmod, fchown, fstat, open, openat,
    statat,
};
use rustix::io::Errno;
use snowmelt_kernel::process::give_up_root;
use snowmelt_types::{Code, ErrorReport};

use crate::access::permissions::{self, failure};

/// How a folder is opened whose content is given.
const FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The fate of files with several names in a folder that is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileLinks {
    /// Files keep their owners: the user could have made another name for a file of somebody else.
    Kept,
    /// Files are given if all their names are in the folder, which was root's until now.
    Given,
}

impl FileLinks {
    /// Returns the fate of those in a folder of this owner.
    pub fn of(owner: u32) -> Self {
        if owner == 0 { Self::Given } else { Self::Kept }
    }
}

/// A user of this machine, with its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUser {
    /// The name, or the number where it was given by number.
    pub name: String,
    /// The number of the user.
    pub user: u32,
    /// The number of the user's own group.
    pub group: u32,
    /// The numbers of the groups of which the user is a member.
    pub groups: Vec<u32>,
    /// The home folder.
    pub home: PathBuf,
}

impl ServerUser {
    /// Finds a user by name or number in `/etc/passwd`, with the groups of `/etc/group`; `None` for
    /// root, which a server stays.
    ///
    /// # Errors
    /// A text that says what is wrong.
    pub fn named(name: &str) -> Result<Option<Self>, String> {
        let found = Self::find_in(name, &text("/etc/passwd"), &text("/etc/group"))?;
        Ok((found.user != 0).then_some(found))
    }

    /// Finds the user other than root whose home is a folder.
    pub fn at_home(folder: &Path) -> Option<Self> {
        Self::at_home_in(folder, &text("/etc/passwd"), &text("/etc/group"))
    }

    fn at_home_in(folder: &Path, users: &str, groups: &str) -> Option<Self> {
        let lives_there = |line: &&str| line.split(':').nth(5).map(Path::new) == Some(folder);
        let name = users.lines().find(lives_there)?.split(':').next()?;
        let found = Self::find_in(name, users, groups).ok()?;
        (found.user != 0).then_some(found)
    }

    fn find_in(name: &str, users: &str, groups: &str) -> Result<Self, String> {
        let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
        let is_named = |user: &Vec<String>| {
            user.first().is_some_and(|own| own == name)
                || user.get(2).is_some_and(|own| own == name)
        };
        let missing = || {
            format!(
                "`{name}` is not a user of this machine (useradd --system --home-dir \
                 /var/lib/snowmelt {name})"
            )
        };
        let known = users.lines().map(fields).find(is_named);
        // A number needs no name, as in containers.
        let unnamed =
            || name.parse::<u32>().ok().map(|_| fields(&format!("{name}:x:{name}:{name}::/")));
        let found = known.or_else(unnamed).ok_or_else(missing)?;
        let number = |place: usize| found.get(place).and_then(|number| number.parse().ok());
        let (Some(user), Some(group)) = (number(2), number(3)) else { return Err(missing()) };
        let own = found[0].clone();
        let is_member = |line: &Vec<String>| {
            line.get(3).is_some_and(|members| members.split(',').any(|member| member == own))
        };
        let groups = groups.lines().map(fields).filter(is_member);
        let groups = groups.filter_map(|line| line.get(2)?.parse().ok()).collect();
        let home = found.get(5).map(PathBuf::from).unwrap_or_default();
        Ok(Self { name: own, user, group, groups, home })
    }

    /// Returns the user by whom a server of this process would give up root: `None` if the process is
    /// that user already.
    ///
    /// # Errors
    /// `SM-0110` if the process is a third user, who can become no other.
    pub fn to_become(&self) -> Result<Option<&Self>, ErrorReport> {
        match rustix::process::geteuid().as_raw() {
            0 => Ok(Some(self)),
            user if user == self.user => Ok(None),
            user => Err(ErrorReport::new(
                Code::OPTION,
                format!("user {user} cannot start a server as {}: only root can", self.name),
            )
            .hint("leave `server.user` out, or start the server as root")),
        }
    }

    /// Gives a folder to the user, with all in it that belongs to others. `links` says what is done
    /// with files of several names.
    ///
    /// # Errors
    /// `SM-0505` for what cannot be given.
    pub fn own(&self, folder: &Path, links: FileLinks) -> Result<(), ErrorReport> {
        let mut names = match links {
            FileLinks::Kept => None,
            FileLinks::Given => Some(HashMap::new()),
        };
        let opened = open(folder, FOLDER, Mode::empty());
        let given = opened.and_then(|opened| self.give(&opened, &mut names));
        given.map_err(|error| failure(folder, &error.into()))
    }

    /// Makes the folder of the audit, or gives it to the user if it is the server's alone: closed to
    /// others, as a server makes it, or empty. Another one, such as `/var/log`, stays whose it is.
    ///
    /// # Errors
    /// `SM-0505`.
    pub fn own_audit(&self, folder: &Path) -> Result<(), ErrorReport> {
        if let Some(parent) = folder.parent().filter(|parent| !parent.exists()) {
            permissions::open_folder(parent)?;
        }
        permissions::private_folder(folder)?;
        let is_own = || -> std::io::Result<bool> {
            let found = folder.metadata()?;
            let is_closed = found.mode() & 0o077 == 0;
            for entry in folder.read_dir()? {
                // A folder of another program, such as auditd's, stays whose it is.
                if !is_closed || !is_of_audit(&entry?.file_name()) {
                    return Ok(false);
                }
            }
            Ok(found.uid() == 0)
        };
        match is_own() {
            Ok(true) => self.own(folder, FileLinks::Kept),
            Ok(false) => Ok(()),
            Err(error) => Err(failure(folder, &error)),
        }
    }

    /// Gives an open folder and what is in it. Another process of the user may exchange a name at any
    /// time, so each is given and entered by its descriptor, and links are not followed.
    fn give(&self, folder: &OwnedFd, names: &mut SeenNames) -> rustix::io::Result<()> {
        if fstat(folder)?.st_uid != self.user {
            // The group of the socket's users stays.
            fchown(folder, Some(Uid::from_raw(self.user)), None)?;
        }
        for entry in Dir::read_from(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            match self.give_entry(folder, name, names) {
                // Removed meanwhile, or exchanged for something else, which its user owns.
                Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => {}
                given => given?,
            }
        }
        Ok(())
    }

    fn give_entry(
        &self,
        folder: &OwnedFd,
        name: &CStr,
        names: &mut SeenNames,
    ) -> rustix::io::Result<()> {
        let found = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
            return self.give(&openat(folder, name, FOLDER, Mode::empty())?, names);
        }
        if found.st_uid == self.user || !all_are_seen(&found, names) {
            return Ok(());
        }
        // By a descriptor, because the name may be exchanged.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(folder, name, flags, Mode::empty())?;
        let again = fstat(&file)?;
        let is_same = (again.st_dev, again.st_ino) == (found.st_dev, found.st_ino);
        if !is_same || again.st_nlink != found.st_nlink {
            return Ok(());
        }
        chownat(&file, "", Some(Uid::from_raw(self.user)), None, AtFlags::EMPTY_PATH)
    }

    /// Takes a folder that the user owns back for root, while the server starts: no other process of the
    /// user can enter it, nor exchange what root makes there. Returns what is to be done with its files
    /// of several names: root alone made those of a folder that was root's.
    ///
    /// # Errors
    /// `SM-0505` for a folder of a third user or of many, and for one that cannot be taken.
    pub fn take_back(&self, folder: &Path) -> Result<FileLinks, ErrorReport> {
        let failed = |error: Errno| failure(folder, &error.into());
        let opened = open(folder, FOLDER, Mode::empty()).map_err(failed)?;
        let found = fstat(&opened).map_err(failed)?;
        // A folder that others share, such as /tmp, is not the server's.
        let is_shared = Mode::from_raw_mode(found.st_mode).contains(Mode::SVTX);
        if is_shared || (found.st_uid != self.user && found.st_uid != 0) {
            let message =
                format!("{} is no folder of root or of {} alone", folder.display(), self.name);
            return Err(ErrorReport::new(Code::STATE, message)
                .hint("choose another state folder with SNOWMELT_STATE"));
        }
        // The owner first, who could change the mode again.
        fchown(&opened, Some(Uid::ROOT), None).map_err(failed)?;
        fchmod(&opened, Mode::RWXU).map_err(failed)?;
        Ok(FileLinks::of(found.st_uid))
    }

    /// Returns whether a folder belongs to the user.
    pub fn owns(&self, folder: &Path) -> bool {
        std::fs::symlink_metadata(folder).is_ok_and(|found| found.uid() == self.user)
    }

    /// Returns the home folder of the user, if it belongs to the user.
    pub fn own_home(&self) -> Option<PathBuf> {
        let found = std::fs::symlink_metadata(&self.home).ok()?;
        (found.is_dir() && found.uid() == self.user).then(|| self.home.clone())
    }

    /// Makes this process the user's, without any capability.
    ///
    /// # Errors
    /// `SM-0901` if the kernel refuses; the process must end then.
    pub fn become_user(&self) -> Result<(), ErrorReport> {
        give_up_root(self.user, self.group, &self.groups).map_err(|error| {
            let message = format!("the server cannot become {}: {error}", self.name);
            ErrorReport::new(Code::INTERNAL, message)
        })
    }
}

/// The number of names of each file that were seen, by its device and number; `None` where files of
/// several names are left alone.
type SeenNames = Option<HashMap<(u64, u64), u64>>;

/// Returns whether all names of a file are known, this one included. A file with another name may be
/// one of somebody else, and is removed without owning it.
fn all_are_seen(found: &Stat, names: &mut SeenNames) -> bool {
    if found.st_nlink == 1 {
        return true;
    }
    let Some(names) = names else { return false };
    let seen = names.entry((found.st_dev, found.st_ino)).or_default();
    *seen += 1;
    *seen == found.st_nlink
}

fn text(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Whether a file in the folder of the audit is the audit's.
fn is_of_audit(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with("audit") && name.ends_with(".jsonl") || name.starts_with("collector.")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    const USERS: &str = "root:x:0:0:root:/root:/bin/sh\nsnow:x:998:997::/var/lib/snow:/bin/false\n";
    const GROUPS: &str = "root:x:0:\nssl:x:110:www,snow\nsnow:x:997:\ndocker:x:999:snowy\n";

    #[test]
    fn users_are_found_by_name_and_number() {
        let find = |name| ServerUser::find_in(name, USERS, GROUPS);
        let found = find("snow").unwrap();
        assert_eq!(found, find("998").unwrap());
        assert_eq!((found.user, found.group, found.groups), (998, 997, vec![110]));
        assert_eq!(found.home, PathBuf::from("/var/lib/snow"));
        for root in ["root", "0"] {
            assert_eq!(find(root).unwrap().user, 0);
            assert_eq!(ServerUser::named(root), Ok(None));
        }
        assert!(find("none").unwrap_err().contains("useradd"));
        let unnamed = find("64700").unwrap();
        assert_eq!((unnamed.user, unnamed.group, unnamed.groups), (64700, 64700, Vec::new()));
        assert!(find("").is_err());
    }

    #[test]
    fn a_user_is_found_by_the_home() {
        let at = |folder| ServerUser::at_home_in(Path::new(folder), USERS, GROUPS);
        assert_eq!(at("/var/lib/snow").map(|found| found.user), Some(998));
        assert_eq!(at("/var/lib/snow/").map(|found| found.user), Some(998));
        for none in ["/root", "/var/lib", "/var/lib/snow/x", ""] {
            assert_eq!(at(none), None, "{none}");
        }
    }

    fn snow() -> ServerUser {
        ServerUser { user: 4321, ..ServerUser::find_in("snow", USERS, GROUPS).unwrap() }
    }

    fn owner(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().uid()
    }

    #[test]
    fn the_folder_of_the_audit_is_given_unless_it_is_also_for_others() {
        let folder = tempfile::tempdir().unwrap();
        let own = |name: &str| {
            let path = folder.path().join(name);
            snow().own_audit(&path).unwrap();
            owner(&path)
        };
        let open = std::fs::Permissions::from_mode(0o755);
        for name in ["closed", "logs", "empty", "other"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
            std::fs::set_permissions(folder.path().join(name), open.clone()).unwrap();
        }
        for name in ["closed", "logs"] {
            std::fs::write(folder.path().join(name).join("audit.jsonl"), "").unwrap();
        }
        for name in ["audit.log", "audit.jsonl"] {
            std::fs::write(folder.path().join("other").join(name), "").unwrap();
        }
        let closed = std::fs::Permissions::from_mode(0o700);
        for name in ["closed", "other"] {
            std::fs::set_permissions(folder.path().join(name), closed.clone()).unwrap();
        }
        let owners = ["new/audit", "closed", "empty", "logs", "other"].map(own);
        assert_eq!(owners, [4321, 4321, 4321, 0, 0]);
        assert_eq!(owner(&folder.path().join("closed/audit.jsonl")), 4321);
        assert_eq!(owner(&folder.path().join("new")), 0, "what leads there stays root's");
    }

    #[test]
    fn a_folder_is_given_with_its_links_and_not_what_these_name() {
        let folder = tempfile::tempdir().unwrap();
        let beside = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        std::fs::create_dir_all(state.join("a/b")).unwrap();
        std::fs::write(state.join("a/b/file"), "x").unwrap();
        std::fs::write(beside.path().join("other"), "x").unwrap();
        symlink(beside.path(), state.join("link")).unwrap();
        // A file of several names, and one that has a name elsewhere.
        std::fs::hard_link(state.join("a/b/file"), state.join("second")).unwrap();
        std::fs::hard_link(beside.path().join("other"), state.join("a/other")).unwrap();
        snow().own(&state, FileLinks::Kept).unwrap();
        for name in ["", "a", "a/b", "link"] {
            assert_eq!(owner(&state.join(name)), 4321, "{name}");
        }
        assert_eq!(owner(&state.join("a/b/file")), 0);
        snow().own(&state, FileLinks::Given).unwrap();
        for name in ["", "a", "a/b", "a/b/file", "link"] {
            assert_eq!(owner(&state.join(name)), 4321, "{name}");
        }
        assert_eq!(owner(beside.path()), 0);
        assert_eq!(owner(&beside.path().join("other")), 0);
        assert_eq!(owner(folder.path()), 0);
    }
}
