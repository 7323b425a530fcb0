//! Finds the programs of a root, as seen from inside it.
//!
//! Invariant: a path is resolved with the root as its root (`RESOLVE_IN_ROOT`): a link in an image
//! leads where it will lead inside the sandbox, and never to a file of the host.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;
use snowmelt_image::RunConfig;
use snowmelt_sandbox::{Base, ProcessSettings};

use super::{InImage, process};
use crate::user_code::unit::PROGRAM_CODE;
use crate::{Error, InstanceLimits, Result};

/// The search path of commands, unless the environment of function or image has a `PATH`.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The folders of the host that sandboxes see, in which programs can be.
const SHOWN: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// The root of a function and its code, as seen from inside the sandbox.
pub(super) struct Inside {
    pub base: Base,
    /// The name of the root, as the user knows it: a folder or an image.
    name: String,
    top: OwnedFd,
    code: PathBuf,
    path: String,
    /// The configuration of the image; empty without a block image.
    pub run: RunConfig,
    /// The user and the working folder with which the program starts.
    pub process: ProcessSettings,
}

impl Inside {
    pub fn open(image: Option<&Path>, code: &Path, limits: &InstanceLimits) -> Result<Self> {
        let base = image.map_or(Base::Host, |folder| Base::Folder(folder.to_owned()));
        let top = image.unwrap_or(Path::new("/"));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(CWD, top, flags, Mode::empty()).map_err(|error| Error::Program {
            program: top.display().to_string(),
            reason: format!("its root cannot be opened as a folder: {error}"),
            hint: "give --root the folder into which an image's file system was unpacked".into(),
        })?;
        let name = top.display().to_string();
        let run = RunConfig::default();
        let process = ProcessSettings::default();
        let code = code.to_owned();
        let path = path(limits, &run);
        Ok(Self { base, name, top: opened, code, path, run, process })
    }

    pub fn of_image(
        name: &str,
        (mounted, run): InImage,
        code: &Path,
        limits: &InstanceLimits,
    ) -> Result<Self> {
        let process = process::settings(name, &mounted.root, &run)?;
        let code = code.to_owned();
        let path = path(limits, &run);
        let base = Base::Image(mounted.at);
        let name = name.to_owned();
        Ok(Self { base, name, top: mounted.root, code, path, run, process })
    }

    /// Returns the path, inside the sandbox, of a program that is named by its path, by `./` and a
    /// file of the code, or by a name to be looked for in the search path.
    pub fn program(&self, name: &str, hint: &str) -> Result<String> {
        if name.starts_with("./") {
            return self.code_program(name);
        }
        let fail = |reason: String| self.missing(name, reason, hint);
        if name.contains('/') {
            let absolute = name.starts_with('/');
            let found = if absolute { self.resolve(Path::new(name)) } else { Err(Unfit::Relative) };
            return found.map_err(|unfit| fail(unfit.reason(name))).map(|_| name.to_owned());
        }
        let mut nearly = None;
        for folder in self.path.split(':').filter(|folder| folder.starts_with('/')) {
            let candidate = Path::new(folder).join(name);
            match self.resolve(&candidate) {
                Ok(_) => return Ok(candidate.display().to_string()),
                Err(Unfit::Missing) => {}
                Err(unfit) => nearly = Some(unfit.reason(&candidate.display().to_string())),
            }
        }
        Err(fail(nearly.unwrap_or_else(|| format!("it is in none of {}", self.path))))
    }

    /// Returns the path, inside the sandbox, of a file of the code that can be executed.
    fn code_program(&self, name: &str) -> Result<String> {
        use std::os::unix::fs::PermissionsExt;
        let inside = self.code_file(name)?;
        let file = self.code.join(name);
        match file.metadata() {
            Ok(found) if found.permissions().mode() & 1 == 1 => Ok(inside),
            _ => Err(Error::Program {
                program: name.to_owned(),
                reason: "the file may not be executed".to_owned(),
                hint: format!("chmod +x {name}, then deploy again"),
            }),
        }
    }

    /// Returns the path, inside the sandbox, of a file of the code.
    pub fn code_file(&self, name: &str) -> Result<String> {
        if self.code.join(name).is_file() {
            let name = name.trim_start_matches("./");
            return Ok(format!("{PROGRAM_CODE}/{name}"));
        }
        Err(Error::Program {
            program: name.to_owned(),
            reason: format!("the code has no such file: it has {}", shown(&self.files())),
            hint: "words that begin with ./ are files of the code".to_owned(),
        })
    }

    /// Returns the names of the files at the top of the code, sorted.
    pub fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.code).into_iter().flatten().flatten();
        let files = entries.filter(|entry| entry.path().is_file());
        let mut names: Vec<_> =
            files.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Returns the real path of a file, if the file can be executed inside the sandbox.
    fn resolve(&self, path: &Path) -> Result<PathBuf, Unfit> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let found = openat2(&self.top, path, flags, Mode::empty(), ResolveFlags::IN_ROOT);
        let found = found.map_err(|error| match error {
            Errno::NOENT | Errno::NOTDIR => Unfit::Missing,
            other => Unfit::Other(other),
        })?;
        let stat = fstat(&found).map_err(Unfit::Other)?;
        // Inside the sandbox a function is an ordinary user who owns nothing.
        let fit = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && stat.st_mode & 0o001 != 0;
        if !fit {
            return Err(Unfit::NotExecutable);
        }
        let real = real_path(found)?;
        if self.base == Base::Host && !SHOWN.iter().any(|shown| real.starts_with(shown)) {
            return Err(Unfit::NotShown(real));
        }
        Ok(real)
    }

    /// Returns the real path of a program on the host, to find files that lie beside it.
    pub fn real(&self, program: &str) -> Option<PathBuf> {
        self.resolve(Path::new(program)).ok()
    }

    fn missing(&self, program: &str, reason: String, hint: &str) -> Error {
        let hint = match &self.base {
            Base::Host => hint.to_owned(),
            Base::Folder(_) => {
                format!("put it into the image at {}, or name it by its path", self.name)
            }
            Base::Image(_) => {
                format!("put it into the image {}, or name it by its path", self.name)
            }
        };
        Error::Program { program: program.to_owned(), reason, hint }
    }
}

/// Returns the search path of commands: from the function's own environment, or the image's, or the
/// usual one.
fn path(limits: &InstanceLimits, run: &RunConfig) -> String {
    let of_image = || run.environment.iter().rfind(|(name, _)| name == "PATH");
    let own = limits.environment.get("PATH").or_else(|| of_image().map(|(_, path)| path));
    own.cloned().unwrap_or_else(|| PATH.to_owned())
}

/// The reason why a file cannot be executed as a program.
enum Unfit {
    Missing,
    Relative,
    NotExecutable,
    NotShown(PathBuf),
    Other(Errno),
}

impl Unfit {
    fn reason(&self, path: &str) -> String {
        match self {
            Self::Missing => "it is not in the root".to_owned(),
            Self::Relative => "it is neither a name, nor begins with / or ./".to_owned(),
            Self::NotExecutable => format!("{path} is not a file that all users may execute"),
            Self::NotShown(real) => {
                format!("it lies at {}, and sandboxes see only {}", real.display(), SHOWN.join(" "))
            }
            Self::Other(error) => format!("{path}: {error}"),
        }
    }
}

fn real_path(found: OwnedFd) -> Result<PathBuf, Unfit> {
    use std::os::fd::AsRawFd;
    let file = File::from(found);
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).map_err(|_| Unfit::Missing)
}

/// Lists the first few names, for a message.
pub(super) fn shown(names: &[String]) -> String {
    const MOST: usize = 8;
    let more = if names.len() > MOST { ", …" } else { "" };
    match names {
        [] => "none".to_owned(),
        names => names[..names.len().min(MOST)].join(", ") + more,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn image() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, mode) in [("bin/tool", 0o755), ("bin/text", 0o644), ("code/serve", 0o755)] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "#!/bin/tool\n").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        symlink("/bin/tool", folder.path().join("bin/linked")).unwrap();
        symlink("/usr/bin/env", folder.path().join("bin/escaped")).unwrap();
        folder
    }

    fn message(found: Result<String>) -> String {
        found.unwrap_err().to_string()
    }

    #[test]
    fn a_program_is_found_as_it_is_inside() {
        let image = image();
        let code = image.path().join("code");
        let inside = Inside::open(Some(image.path()), &code, &InstanceLimits::default()).unwrap();
        assert_eq!(inside.program("tool", "").unwrap(), "/bin/tool");
        assert_eq!(inside.program("/bin/linked", "").unwrap(), "/bin/linked");
        assert_eq!(inside.program("./serve", "").unwrap(), "/run/snowmelt/code/serve");
        assert!(message(inside.program("text", "")).contains("all users may execute"));
        assert!(message(inside.program("escaped", "")).contains("it is in none of"), "of the host");
        assert!(message(inside.program("bin/tool", "")).contains("neither a name"));
        assert!(message(inside.program("./other", "")).contains("it has serve"));
    }

    #[test]
    fn programs_of_the_host_that_sandboxes_do_not_see_are_reported() {
        let hidden = image();
        let inside = Inside::open(None, hidden.path(), &InstanceLimits::default()).unwrap();
        assert_eq!(inside.program("/bin/sh", "").unwrap(), "/bin/sh");
        let path = hidden.path().join("bin/tool").display().to_string();
        assert!(message(inside.program(&path, "")).contains("sandboxes see only"));
    }

    #[test]
    fn a_missing_root_is_reported() {
        let missing = Path::new("/no/such/image");
        let opened = Inside::open(Some(missing), missing, &InstanceLimits::default());
        assert!(opened.err().unwrap().to_string().contains("/no/such/image"));
    }
}
