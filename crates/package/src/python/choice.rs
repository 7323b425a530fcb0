//! The choice of the interpreter for code that asks for another version than the platform's: among
//! the machine's interpreters, or by `uv`, which fetches one where its source can be reached.
//!
//! Invariant: a fetched interpreter is kept once for each minor version, so users who name versions
//! cannot fill the disk.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::uv::{self, Uv, useful_lines};
use super::{Python, WantedPython, bundle, is_program};
use crate::storage::{FileLock, LockMode, blocking, make_folder};
use crate::{Error, Result};

/// The folder of fetched interpreters in the state folder.
const FETCHED: &str = "pythons";

/// The time limit for fetching an interpreter, which has some 30 MB.
const FETCH_LIMIT: Duration = Duration::from_secs(300);

impl Python {
    /// Returns the interpreter for code that asks for these versions: `default` where it will do,
    /// else the newest of the machine, else one that `uv` fetches into the state folder.
    pub async fn choose(wanted: &WantedPython, default: &Self, state: &Path) -> Result<Self> {
        if wanted.allows(default) {
            return Ok(default.clone());
        }
        if let Some(found) = find(wanted, state).await? {
            return Ok(found);
        }
        fetch(wanted, default, state).await
    }
}

async fn find(wanted: &WantedPython, state: &Path) -> Result<Option<Python>> {
    let wanted = wanted.clone();
    let state = state.to_owned();
    blocking(move || Ok(on_machine(&wanted, &state, &folders(&state)))).await
}

/// The newest interpreter in these folders of programs that will do.
fn on_machine(wanted: &WantedPython, state: &Path, folders: &[PathBuf]) -> Option<Python> {
    let named = |minor| {
        let name = OsString::from(format!("python3.{minor}"));
        folders.iter().map(move |folder| folder.join(&name))
    };
    let programs = wanted.minors().flat_map(named).filter(|path| is_program(path));
    // A shim of a version that is not selected does not run.
    let mut usable = programs.filter_map(|path| Python::discover(Some(&path), state).ok());
    usable.find(|python| wanted.allows(python))
}

/// The folders in which interpreters may be: those in which uv and pyenv put each version, and
/// those on the `PATH`.
fn folders(state: &Path) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
    let home = bundle::home();
    let below = |folder: &str| home.as_ref().map(|home| home.join(folder));
    let pyenv = std::env::var_os("PYENV_ROOT").map(PathBuf::from).or_else(|| below(".pyenv"));
    let each = [
        Some(state.join(FETCHED)),
        below(".local/share/uv/python"),
        pyenv.map(|root| root.join("versions")),
    ];
    // A shim on the `PATH` runs only the versions that are selected, so these come first.
    each.into_iter().flatten().flat_map(|folder| programs_below(&folder)).chain(on_path).collect()
}

/// The folders of programs of the versions in a folder, the last name first.
fn programs_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path().join("bin")).collect();
    found.sort();
    found.reverse();
    found
}

async fn fetch(wanted: &WantedPython, default: &Python, state: &Path) -> Result<Python> {
    let missing = |lines| Error::PythonVersion {
        wanted: wanted.to_string(),
        running: default.minor_version(),
        lines,
    };
    let Some(minor) = wanted.minors().next() else { return Err(missing(Vec::new())) };
    let folder = state.join(FETCHED);
    make_folder(&folder, 0o755)?;
    let alone = FileLock::acquire(&folder.join("lock"), LockMode::Exclusive, || ()).await?;
    // Another caller may have fetched it meanwhile.
    if let Some(found) = find(wanted, state).await? {
        return Ok(found);
    }
    let Ok(uv) = Uv::find(uv::named().as_deref(), default) else { return Err(missing(Vec::new())) };
    let output = uv.fetch_python(&format!("3.{minor}"), &folder, FETCH_LIMIT).await?;
    drop(alone);
    let found = find(wanted, state).await?;
    found.ok_or_else(|| missing(useful_lines(&output.stderr)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn wanted(line: &str) -> WantedPython {
        WantedPython::split(&[line.to_owned()]).unwrap().0
    }

    fn default(state: &Path) -> Python {
        Python::discover(None, state).unwrap()
    }

    /// Links the default interpreter by the name of its version, in a folder with pyenv's layout.
    fn linked(default: &Python, folder: &Path) -> PathBuf {
        let bin = folder.join(format!("{}.7", default.minor_version())).join("bin");
        fs::create_dir_all(&bin).unwrap();
        let link = bin.join(format!("python{}", default.minor_version()));
        std::os::unix::fs::symlink(&default.executable, link).unwrap();
        bin
    }

    #[test]
    fn an_interpreter_of_the_machine_is_found_by_its_version() {
        let state = tempfile::tempdir().unwrap();
        let default = default(state.path());
        let versions = state.path().join("versions");
        let bin = linked(&default, &versions);
        assert_eq!(programs_below(&versions), [bin]);
        let (_, minor) = default.version;
        let found =
            |line: &str| on_machine(&wanted(line), state.path(), &programs_below(&versions));
        let exact = found(&format!("python==3.{minor}")).unwrap();
        assert_eq!(exact.executable, default.executable);
        let release = format!("python==3.{minor}.{}", default.patch);
        assert!(found(&release).is_some() && found(&format!("{release}99")).is_none());
        assert!(found(&format!("python<3.{minor}")).is_none());
    }

    /// A stand-in for uv that does what `script` says.
    fn uv(folder: &Path, script: &str) -> Uv {
        let path = folder.join("uv");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let python = default(folder);
        Uv::find(Some(&path), &python).unwrap()
    }

    #[tokio::test]
    async fn uv_is_asked_for_a_minor_version_in_a_folder() {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join(FETCHED);
        fs::create_dir(&folder).unwrap();
        let script = "cd $UV_PYTHON_INSTALL_DIR; mkdir -p cpython-3.13.1/bin; echo $@ >asked";
        let uv = uv(state.path(), script);
        let done = uv.fetch_python("3.13", &folder, FETCH_LIMIT).await.unwrap();
        assert!(done.status.success(), "{}", done.stderr);
        assert_eq!(programs_below(&folder).first(), Some(&folder.join("cpython-3.13.1/bin")));
        let asked = fs::read_to_string(folder.join("asked")).unwrap();
        assert!(asked.starts_with("python install") && asked.ends_with(" 3.13\n"), "{asked}");
    }

    #[tokio::test]
    async fn versions_that_no_interpreter_has_are_refused_with_both() {
        let state = tempfile::tempdir().unwrap();
        let default = default(state.path());
        let refused = Python::choose(&wanted("python>=4"), &default, state.path()).await;
        let report = snowmelt_types::Report::report(&refused.unwrap_err());
        assert_eq!(report.code, "SM-0306");
        assert!(report.message.contains("python>=4"), "{report}");
        assert!(report.message.contains(&default.minor_version()), "{report}");
        let any = Python::choose(&WantedPython::default(), &default, state.path()).await.unwrap();
        assert_eq!(any, default);
    }
}
