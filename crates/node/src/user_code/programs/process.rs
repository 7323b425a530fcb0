//! The start of a program in an image by the image's configuration: its environment, its working
//! folder and its user.
//!
//! Invariant: the configuration is untrusted. Its user is an id inside the sandbox, never one of
//! the host; it cannot set the platform's own variables; and files of the image are opened below
//! its root only.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use snowmelt_image::RunConfig;
use snowmelt_sandbox::ProcessSettings;

use crate::files::regular_file;
use crate::{Error, Result};

/// The prefix of the environment variables that only the platform sets.
const OURS: &str = "SNOWMELT_";
/// The most bytes that are read of a file with users or groups.
const MAX_BYTES: u64 = 1 << 20;

/// Returns the variables of an image's configuration, without those that only the platform sets.
pub(super) fn environment(run: &RunConfig) -> impl Iterator<Item = &(String, String)> {
    run.environment.iter().filter(|(name, _)| !name.starts_with(OURS))
}

/// Returns the user and the working folder of an image's configuration; `top` is the root of the
/// image `name`.
pub(super) fn settings(name: &str, top: &OwnedFd, run: &RunConfig) -> Result<ProcessSettings> {
    let mut settings = ProcessSettings::default();
    if let Some(user) = &run.user {
        let refuse = |reason| refused(name, &format!("its user `{user}` {reason}"));
        (settings.user, settings.group) = ids(top, user).map_err(refuse)?;
    }
    if let Some(folder) = &run.working_folder {
        let refuse = |reason| refused(name, &format!("its working folder {folder} {reason}"));
        settings.working_folder = working_folder(top, folder).map_err(refuse)?;
    }
    Ok(settings)
}

fn refused(image: &str, reason: &str) -> Error {
    Error::Program {
        program: image.to_owned(),
        reason: format!("the configuration of the image cannot be used: {reason}"),
        hint: "snowmelt image inspect shows the configuration; build an image on this one with \
               another --user or --working-folder"
            .to_owned(),
    }
}

/// Checks that a working folder is in the image. `/tmp` is the sandbox's own, so it always exists.
fn working_folder(top: &OwnedFd, folder: &str) -> Result<PathBuf, String> {
    let path = Path::new("/").join(folder);
    if path == Path::new("/tmp") {
        return Ok(path);
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    match openat2(top, &path, flags, Mode::empty(), resolve) {
        Ok(_) => Ok(path),
        Err(Errno::NOENT) => Err("is not in the image".to_owned()),
        Err(Errno::NOTDIR) => Err("is not a folder".to_owned()),
        Err(error) => Err(format!("cannot be opened: {error}")),
    }
}

/// Returns the ids of a user and group inside the sandbox. No function is root there: the image's
/// root becomes the ordinary user of all functions.
fn ids(top: &OwnedFd, text: &str) -> Result<(u32, u32), String> {
    let ordinary = ProcessSettings::default();
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group).filter(|group| !group.is_empty())),
        None => (text, None),
    };
    let found = find(top, "etc/passwd", user)?;
    let missing = || "is not in its /etc/passwd".to_owned();
    let id = match (&found, user.parse()) {
        (_, Ok(id)) => id,
        (Some(line), _) => number(line, 2).ok_or_else(missing)?,
        (None, _) => return Err(missing()),
    };
    let group = match group {
        None => found.and_then(|line| number(&line, 3)).unwrap_or(0),
        Some(group) => match group.parse() {
            Ok(id) => id,
            Err(_) => {
                let line = find(top, "etc/group", group)?;
                let id = line.and_then(|line| number(&line, 2));
                id.ok_or_else(|| "has a group that is not in its /etc/group".to_owned())?
            }
        },
    };
    let fit = |id, ordinary| if matches!(id, 0 | u32::MAX) { ordinary } else { id };
    Ok((fit(id, ordinary.user), fit(group, ordinary.group)))
}

/// Finds the line of a user or group in `file`, by its name or number.
fn find(top: &OwnedFd, file: &str, wanted: &str) -> Result<Option<String>, String> {
    let Some(text) =
        read(top, file).map_err(|error| format!("cannot be found in {file}: {error}"))?
    else {
        return Ok(None);
    };
    let number = wanted.parse::<u32>().ok();
    let is_it = |line: &&str| {
        let mut fields = line.split(':');
        match number {
            None => fields.next() == Some(wanted),
            Some(number) => fields.nth(2).and_then(|id| id.parse().ok()) == Some(number),
        }
    };
    Ok(text.lines().find(is_it).map(str::to_owned))
}

fn number(line: &str, field: usize) -> Option<u32> {
    line.split(':').nth(field)?.parse().ok()
}

/// Reads a regular file of the image; `None` if there is none. Opening it never blocks.
fn read(top: &OwnedFd, path: &str) -> std::io::Result<Option<String>> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let found = match openat2(top, path, regular_file::FLAGS, Mode::empty(), resolve) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        found => found?,
    };
    if !regular_file::is_regular(&found)? {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    File::from(found).take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> (tempfile::TempDir, OwnedFd) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("etc")).unwrap();
        std::fs::create_dir_all(folder.path().join("app")).unwrap();
        let passwd = "root:x:0:0::/:/bin/sh\nweb:x:33:44::/srv:/bin/false\nodd:x\n";
        std::fs::write(folder.path().join("etc/passwd"), passwd).unwrap();
        std::fs::write(folder.path().join("etc/group"), "root:x:0:\nstaff:x:50:\n").unwrap();
        let top = File::open(folder.path()).unwrap().into();
        (folder, top)
    }

    #[test]
    fn users_are_found_by_name_and_number_and_nobody_is_root() {
        let (_folder, top) = image();
        for (text, expected) in [
            ("web", (33, 44)),
            ("33", (33, 44)),
            ("web:staff", (33, 50)),
            ("web:7", (33, 7)),
            ("65532", (65532, 1000)),
            ("65532:65533", (65532, 65533)),
            ("root", (1000, 1000)),
            ("0", (1000, 1000)),
            ("0:0", (1000, 1000)),
            ("4294967295", (1000, 1000)),
            ("web:", (33, 44)),
        ] {
            assert_eq!(ids(&top, text), Ok(expected), "{text}");
        }
        for text in ["nobody", "odd", "web:none", "-1", "4294967296", ":", "../etc"] {
            assert!(ids(&top, text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_working_folder_is_looked_up_in_the_image() {
        let (folder, top) = image();
        std::os::unix::fs::symlink("/usr", folder.path().join("out")).unwrap();
        assert_eq!(working_folder(&top, "/app"), Ok("/app".into()));
        assert_eq!(working_folder(&top, "app"), Ok("/app".into()));
        assert_eq!(working_folder(&top, "/tmp"), Ok("/tmp".into()));
        for path in ["/none", "/etc/passwd", "/out", "/proc/self/fd/1"] {
            assert!(working_folder(&top, path).is_err(), "{path}");
        }
    }

    #[test]
    fn a_file_of_users_that_blocks_its_readers_is_ignored() {
        let (folder, top) = image();
        let path = folder.path().join("etc/passwd");
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, Mode::from_raw_mode(0o644)).unwrap();
        assert!(ids(&top, "web").is_err());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(ids(&top, "12"), Ok((12, 1000)), "an image without users");
    }

    #[test]
    fn variables_of_the_platform_are_not_set_by_an_image() {
        let all = [("PATH", "/x"), ("SNOWMELT_CHANNEL_FD", "9"), ("SNOWMELT", "1")];
        let environment = all.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let run = RunConfig { environment, ..RunConfig::default() };
        let names: Vec<_> = super::environment(&run).map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["PATH", "SNOWMELT"]);
    }
}
