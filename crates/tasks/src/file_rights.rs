//! The rights with which the files of a query are opened.
//!
//! Invariant: the server opens no file for a user of the machine that this user could not open, and
//! none for a client on another host. Workers and drivers are given descriptors, never paths.

use std::fs::File;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use snowmelt_kernel::file_user::{FileUser, FileUserThread};
use snowmelt_node::files::regular_file;
use snowmelt_types::{Code, ErrorReport, Report};
use snowmelt_wire::LocalFile;

use crate::file_service::FileProcess;

/// The rights of who runs a query to files of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileRights {
    /// Files are opened with the rights of the server: it runs the query for itself or for root.
    #[default]
    Server,
    /// Files are opened with the rights of a user of the machine.
    User(FileUser),
    /// No file is opened: the client is on another host.
    None,
}

/// Opens files of this machine for one query.
#[derive(Debug, Default)]
pub(crate) struct FileOpener {
    rights: FileRights,
    // Started with the first file.
    started: Mutex<Option<UserFiles>>,
}

impl FileOpener {
    pub fn new(rights: FileRights) -> Self {
        Self { rights, started: Mutex::default() }
    }

    pub fn rights(&self) -> &FileRights {
        &self.rights
    }

    /// Returns the files of a location, which is relative to a folder. Waits for the disk.
    pub fn find(&self, location: &str, folder: &Path) -> Result<Vec<LocalFile>, ErrorReport> {
        let found = self.with_rights(location, |files| files.find(location, folder))?;
        found.unwrap_or_else(|error| Err(self.failure(&error)))
    }

    /// Opens a regular file.
    pub fn open(&self, path: &Path) -> Result<File, ErrorReport> {
        let shown = path.display().to_string();
        let opened = self.with_rights(&shown, |files| files.open(path))?;
        opened.map_err(|error| {
            ErrorReport::new(Code::STORAGE, format!("cannot open {shown}: {error}"))
                .hint("it was there when the query was planned: run the query again")
        })
    }

    fn with_rights<T>(
        &self,
        what: &str,
        work: impl FnOnce(&UserFiles) -> T,
    ) -> Result<T, ErrorReport> {
        let user = match &self.rights {
            FileRights::Server => return Ok(work(&UserFiles::Server)),
            FileRights::User(user) => user,
            FileRights::None => return Err(remote(what)),
        };
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        let files = match started.take() {
            Some(files) => files,
            None => UserFiles::start(user).map_err(|error| self.failure(&error))?,
        };
        Ok(work(started.insert(files)))
    }

    fn failure(&self, error: &std::io::Error) -> ErrorReport {
        let message = match &self.rights {
            FileRights::User(user) => {
                format!("the server cannot read files as user {}: {error}", user.user)
            }
            _ => format!("the server cannot read files: {error}"),
        };
        ErrorReport::new(Code::FILE_RIGHTS, message).hint(
            "a server that is not root reads local files for its own user only: use s3:// or \
             https://, or run `snowmelt sql --embedded`",
        )
    }
}

/// Files with the rights of whoever asks for them.
#[derive(Debug)]
enum UserFiles {
    /// By this process.
    Server,
    /// By a thread of this process, which is root.
    Thread(FileUserThread),
    /// By a process that the broker has started.
    Process(FileProcess),
}

impl UserFiles {
    fn start(user: &FileUser) -> std::io::Result<Self> {
        match &user.connection {
            Some(connection) => FileProcess::start(connection).map(Self::Process),
            None => FileUserThread::start(user.clone()).map(Self::Thread),
        }
    }

    fn find(&self, location: &str, folder: &Path) -> std::io::Result<FoundFiles> {
        let find = |location: &str, folder: &Path| {
            snowmelt_files::find(location, folder).map_err(|error| error.report())
        };
        match self {
            Self::Server => Ok(find(location, folder)),
            Self::Process(process) => process.find(location, folder),
            Self::Thread(thread) => {
                let location = location.to_owned();
                let folder = folder.to_owned();
                thread.run(move || find(&location, &folder))
            }
        }
    }

    fn open(&self, path: &Path) -> std::io::Result<File> {
        match self {
            Self::Server => regular_file::open(path),
            Self::Process(process) => process.open(path),
            Self::Thread(thread) => {
                let path = path.to_owned();
                thread.run(move || regular_file::open(&path))?
            }
        }
    }
}

/// The files of a location, or why there are none.
type FoundFiles = Result<Vec<LocalFile>, ErrorReport>;

fn remote(location: &str) -> ErrorReport {
    let message = format!("`{location}` is a path, and a client on another host has none here");
    ErrorReport::new(Code::FILE_RIGHTS, message)
        .hint("read from a bucket or a web server: 's3://BUCKET/PATH' or 'https://...'")
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn opener(user: u32, groups: &[u32]) -> FileOpener {
        let user = FileUser { user, group: user, groups: groups.to_vec(), connection: None };
        FileOpener::new(FileRights::User(user))
    }

    /// A folder that all may enter, with a file of root, one of a group and a link to the first.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        for (name, mode) in [("root.csv", 0o600), ("group.csv", 0o640)] {
            let path = folder.path().join(name);
            write(&path, "x\n1\n").unwrap();
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        }
        chown(folder.path().join("group.csv"), None, Some(4400)).unwrap();
        symlink("root.csv", folder.path().join("link.csv")).unwrap();
        folder
    }

    #[test]
    fn a_user_opens_what_the_user_may_read() {
        let folder = folder();
        let member = opener(4321, &[4400]);
        let opens = |opener: &FileOpener, name| opener.open(&folder.path().join(name)).is_ok();
        assert!(opens(&member, "group.csv"));
        assert!(!opens(&member, "root.csv") && !opens(&member, "link.csv"));
        assert!(!opens(&opener(4321, &[]), "group.csv"));
        assert!(opens(&FileOpener::default(), "root.csv"));
    }

    #[test]
    fn a_folder_that_the_user_may_not_enter_is_not_listed() {
        let folder = folder();
        let find = |opener: &FileOpener| opener.find(".", folder.path()).map(|files| files.len());
        assert_eq!(find(&opener(4321, &[])).unwrap(), 3);
        set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
        let refused = opener(4321, &[]).find("group.csv", folder.path()).unwrap_err();
        assert!(refused.message.contains("Permission denied"), "{refused}");
        assert!(find(&opener(4321, &[])).is_err());
        assert_eq!(find(&FileOpener::default()).unwrap(), 3);
    }

    #[test]
    fn a_client_on_another_host_has_no_files() {
        let folder = folder();
        let remote = FileOpener::new(FileRights::None);
        let refused = remote.find("group.csv", folder.path()).unwrap_err();
        assert_eq!(refused.code, Code::FILE_RIGHTS.code);
        assert!(remote.open(Path::new("/etc/hosts")).is_err());
    }
}
