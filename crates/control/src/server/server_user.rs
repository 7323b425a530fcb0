//! The user that a server of root becomes, and what it hands over to that user before.
//!
//! Invariant: the user owns the state folder with all that is in it when the server gives up root;
//! nothing else of the machine changes its owner.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Uid, chownat, fchmod, fchown, fstat, open, openat, statat,
};
use rustix::io::Errno;
use snowmelt_kernel::process::give_up_root;
use snowmelt_types::{Code, ErrorReport};

use crate::access::permissions::failure;

/// How a folder is opened whose content is given.
const FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A user of this machine other than root, with its groups.
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
    /// Finds a user by name or number in `/etc/passwd`, with the groups of `/etc/group`.
    ///
    /// # Errors
    /// A text that says what is wrong.
    pub fn find(name: &str) -> Result<Self, String> {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Self::find_in(name, &read("/etc/passwd"), &read("/etc/group"))
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
        if user == 0 {
            return Err("`server.user` is root: leave it out, or name another user".to_owned());
        }
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

    /// Gives a folder to the user, with all in it that belongs to others.
    ///
    /// # Errors
    /// `SM-0505` for what cannot be given.
    pub fn own(&self, folder: &Path) -> Result<(), ErrorReport> {
        let opened = open(folder, FOLDER, Mode::empty());
        let given = opened.and_then(|opened| self.give(&opened));
        given.map_err(|error| failure(folder, &error.into()))
    }

    /// Gives an open folder and what is in it. Another process of the user may exchange a name at any
    /// time, so each is given and entered by its descriptor, and links are not followed.
    fn give(&self, folder: &OwnedFd) -> rustix::io::Result<()> {
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
            match self.give_entry(folder, name) {
                // Removed meanwhile, or exchanged for something else, which its user owns.
                Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => {}
                given => given?,
            }
        }
        Ok(())
    }

    fn give_entry(&self, folder: &OwnedFd, name: &CStr) -> rustix::io::Result<()> {
        let found = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
            return self.give(&openat(folder, name, FOLDER, Mode::empty())?);
        }
        // A file with a second name may be one of somebody else, and is removed without owning it.
        if found.st_uid == self.user || found.st_nlink > 1 {
            return Ok(());
        }
        // By a descriptor, because the name may be exchanged.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(folder, name, flags, Mode::empty())?;
        let again = fstat(&file)?;
        if FileType::from_raw_mode(again.st_mode) == FileType::Directory || again.st_nlink > 1 {
            return Ok(());
        }
        chownat(&file, "", Some(Uid::from_raw(self.user)), None, AtFlags::EMPTY_PATH)
    }

    /// Takes a folder that the user owns back for root, while the server starts: no other process of the
    /// user can enter it, nor exchange what root makes there.
    ///
    /// # Errors
    /// `SM-0505` for a folder of a third user or of many, and for one that cannot be taken.
    pub fn take_back(&self, folder: &Path) -> Result<(), ErrorReport> {
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
        fchmod(&opened, Mode::RWXU).map_err(failed)
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const USERS: &str = "root:x:0:0:root:/root:/bin/sh\nsnow:x:998:997::/var/lib/snow:/bin/false\n";
    const GROUPS: &str = "root:x:0:\nssl:x:110:www,snow\nsnow:x:997:\ndocker:x:999:snowy\n";

    #[test]
    fn users_are_found_by_name_and_number_and_root_is_none() {
        let find = |name| ServerUser::find_in(name, USERS, GROUPS);
        let found = find("snow").unwrap();
        assert_eq!(found, find("998").unwrap());
        assert_eq!((found.user, found.group, found.groups), (998, 997, vec![110]));
        assert_eq!(found.home, PathBuf::from("/var/lib/snow"));
        for root in ["root", "0"] {
            assert!(find(root).unwrap_err().contains("is root"));
        }
        assert!(find("none").unwrap_err().contains("useradd"));
        let unnamed = find("64700").unwrap();
        assert_eq!((unnamed.user, unnamed.group, unnamed.groups), (64700, 64700, Vec::new()));
        assert!(find("").is_err());
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
        let user = ServerUser { user: 4321, ..ServerUser::find_in("snow", USERS, GROUPS).unwrap() };
        user.own(&state).unwrap();
        let owner = |path: &Path| std::fs::symlink_metadata(path).unwrap().uid();
        for name in ["", "a", "a/b", "a/b/file", "link"] {
            assert_eq!(owner(&state.join(name)), 4321, "{name}");
        }
        assert_eq!(owner(beside.path()), 0);
        assert_eq!(owner(&beside.path().join("other")), 0);
        assert_eq!(owner(folder.path()), 0);
    }
}
