//! Finds the interpreter's program and the folders of the host that it needs.

use std::env;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{InterpreterFacts, bundle};
use crate::{Error, Result};

/// Returns the path of the interpreter: `explicit`, `SNOWMELT_PYTHON`, that of the virtual
/// environment in which this program is installed, or `python3` on the `PATH`.
pub(super) fn named(explicit: Option<&Path>) -> Result<PathBuf> {
    let variable = env::var_os("SNOWMELT_PYTHON").filter(|value| !value.is_empty());
    if let Some(path) = explicit.map(Path::to_owned).or(variable.map(PathBuf::from)) {
        // A bare name is searched on the PATH, as in a shell.
        let bare = path.components().count() == 1 && path.is_relative();
        let found = if bare { on_path(path.as_os_str()) } else { std::path::absolute(&path).ok() };
        let reason = || format!("{} does not exist", path.display());
        return found
            .filter(|path| is_program(path))
            .ok_or_else(|| Error::PythonMissing { reason: reason() });
    }
    let own = bundle::folder().and_then(|folder| bundle::python_beside(&folder));
    own.filter(|path| is_program(path))
        .or_else(|| on_path(OsStr::new("python3")))
        .ok_or_else(|| Error::PythonMissing { reason: "there is no python3 on the PATH".into() })
}

/// The first program with that name on the `PATH`. Relative entries are skipped, because the result
/// must not depend on the current folder.
pub(crate) fn on_path(name: &OsStr) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let mut candidates = env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name));
    candidates.find(|candidate| is_program(candidate))
}

/// Whether the path is an executable file.
pub(crate) fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Folders that every sandbox has.
const BASE: [&str; 6] = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32"];

/// The folders that the interpreter needs in addition to the base, without nested ones.
pub(super) fn outside_of_base(answer: &InterpreterFacts, executable: &Path) -> Vec<PathBuf> {
    let wanted = answer.prefixes.iter().chain(&answer.stdlib).chain(&answer.libraries);
    let home = answer.home.canonicalize().unwrap_or_else(|_| answer.home.clone());
    let mut folders: Vec<PathBuf> = wanted
        .filter_map(|path| path.canonicalize().ok())
        .chain(executable.parent().map(Path::to_owned))
        .filter(|path| path.is_dir() && !is_too_wide(path, &home))
        .filter(|path| !BASE.iter().any(|base| path.starts_with(base)))
        .collect();
    folders.sort();
    folders.dedup_by(|inner, outer| inner.starts_with(&*outer));
    folders
}

/// Whether a folder is too wide to be shown. An interpreter with the prefix `/` or a home folder
/// must not make all of it visible in every sandbox; its library and program folders, which are
/// also in the list, suffice.
fn is_too_wide(path: &Path, home: &Path) -> bool {
    path.components().count() <= 2 || home.starts_with(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_folder_is_never_exposed() {
        let home = Path::new("/home/ada");
        for wide in ["/", "/home", "/home/ada", "/srv"] {
            assert!(is_too_wide(Path::new(wide), home), "{wide}");
        }
        assert!(!is_too_wide(Path::new("/home/ada/.pyenv/versions/3.12.1"), home));
    }
}
