//! The configuration files that are read: the one that `SNOWMELT_CONFIG` names, alone, or else the
//! user's and the machine's.
//!
//! Invariant: a key of an earlier file overrides the same key of a later one.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use snowmelt_types::{Code, ErrorReport};

use super::file::{ConfigFile, TextValue};
use crate::env;
use crate::terminal::text;

/// The settings in the files.
#[derive(Debug)]
pub struct ConfigFiles {
    found: Vec<ConfigFile>,
    /// A line for each place: the path and what was found there.
    pub looked: Vec<String>,
}

/// A file that may be read.
struct FileCandidate {
    path: PathBuf,
    /// Whether a missing file is an error.
    must_exist: bool,
    /// Whether a file that this user may not read is an error.
    must_be_readable: bool,
}

impl ConfigFiles {
    /// Reads the files of this process's environment.
    pub fn find() -> Result<Self, ErrorReport> {
        if let Some(path) = env::path(env::CONFIG) {
            let place = FileCandidate { path, must_exist: true, must_be_readable: true };
            return Self::read(vec![place], Vec::new());
        }
        let machine = Path::new(env::MACHINE_CONFIG);
        Self::of_user_and_machine(env::config_file(), machine)
    }

    fn of_user_and_machine(user: Option<PathBuf>, machine: &Path) -> Result<Self, ErrorReport> {
        let none = match &user {
            Some(_) => Vec::new(),
            None => vec![
                "~/.config/snowmelt/config.toml: not looked for, because neither HOME nor \
                 XDG_CONFIG_HOME is set"
                    .to_owned(),
            ],
        };
        let user =
            user.map(|path| FileCandidate { path, must_exist: false, must_be_readable: true });
        // What only root may read there is meant for the server.
        let machine =
            FileCandidate { path: machine.to_owned(), must_exist: false, must_be_readable: false };
        Self::read(user.into_iter().chain([machine]).collect(), none)
    }

    fn read(places: Vec<FileCandidate>, mut looked: Vec<String>) -> Result<Self, ErrorReport> {
        let mut found = Vec::new();
        for FileCandidate { path, must_exist, must_be_readable } in places {
            let path = std::path::absolute(&path).unwrap_or(path);
            let shown = path.display().to_string();
            let result = match std::fs::read_to_string(&path) {
                Ok(text) => {
                    found.push(ConfigFile::parse(path, &text)?);
                    "read"
                }
                Err(error) if is_missing(&error) && !must_exist => "not there",
                Err(error) if error.kind() == ErrorKind::PermissionDenied && !must_be_readable => {
                    "not read, because this user may not read it"
                }
                Err(error) => return Err(unreadable(&path, &error)),
            };
            looked.push(format!("{shown}: {result}"));
        }
        Ok(Self { found, looked })
    }

    /// The entry of a key, and the file that has it.
    pub fn get(&self, name: &str) -> Option<(&Path, &TextValue)> {
        self.found.iter().find_map(|file| Some((&*file.path, file.entries.get(name)?)))
    }
}

fn is_missing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn unreadable(path: &Path, error: &std::io::Error) -> ErrorReport {
    let reason = text::reason(error);
    let message = format!("the configuration {} cannot be read: {reason}", path.display());
    ErrorReport::new(Code::OPTION, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn a_service_without_a_home_reads_the_file_of_the_machine() {
        let folder = tempfile::tempdir().unwrap();
        let machine = written(folder.path(), "machine.toml", "[query]\nworkers = 3\n");
        let files = ConfigFiles::of_user_and_machine(None, &machine).unwrap();
        let (path, entry) = files.get("query.workers").unwrap();
        assert_eq!((path, entry.text.as_str(), entry.line), (&*machine, "3", 2));
        assert!(files.looked[0].contains("neither HOME nor XDG_CONFIG_HOME is set"));
        assert_eq!(files.looked[1], format!("{}: read", machine.display()));
    }

    #[test]
    fn a_key_of_the_user_overrides_that_of_the_machine_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let both = "[query]\nworkers = 3\nmemory = \"2GiB\"\n";
        let machine = written(folder.path(), "machine.toml", both);
        let user = written(folder.path(), "user.toml", "[query]\nworkers = 5\n");
        let files = ConfigFiles::of_user_and_machine(Some(user.clone()), &machine).unwrap();
        assert_eq!(files.get("query.workers").unwrap().0, user);
        assert_eq!(files.get("query.workers").unwrap().1.text, "5");
        assert_eq!(files.get("query.memory").unwrap().0, machine);
        assert!(files.get("query.timeout").is_none());
        let missing = folder.path().join("none/config.toml");
        let files = ConfigFiles::of_user_and_machine(Some(missing.clone()), &machine).unwrap();
        assert_eq!(files.looked[0], format!("{}: not there", missing.display()));
        assert_eq!(files.get("query.workers").unwrap().1.text, "3");
    }

    #[test]
    fn an_error_in_the_file_of_the_machine_is_reported_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let machine = written(folder.path(), "machine.toml", "[query]\nworker = 3\n");
        let report = ConfigFiles::of_user_and_machine(None, &machine).unwrap_err();
        let at = report.location.unwrap();
        assert_eq!((at.file, at.line), (machine.display().to_string(), 2));
    }
}
