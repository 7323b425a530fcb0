//! The Python interpreter that functions run on, and what of the host it needs inside a sandbox.
//!
//! Invariant: [`Python::executable`] is a real file, no link, shim or virtual environment, and
//! it runs inside a sandbox that shows [`Python::prefixes`] at the same paths beside the base.

mod cache;
mod locate;

pub(crate) use locate::{is_program, on_path};

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The oldest `major.minor` of Python on which the runtime works.
pub const OLDEST_PYTHON: (u8, u8) = (3, 10);

/// A Python interpreter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Python {
    /// Its real path.
    pub executable: PathBuf,
    /// Major and minor version.
    pub version: (u8, u8),
    /// Folders outside of `/usr`, `/lib*` and `/bin` that it needs at the same path.
    pub prefixes: Vec<PathBuf>,
    /// Folders of the standard library.
    pub stdlib: Vec<PathBuf>,
    /// Folders of the host's own packages for it, which a sandbox must not show.
    pub sites: Vec<PathBuf>,
    /// Names of the modules of the standard library.
    pub stdlib_modules: Vec<String>,
    /// What compiled modules are built for: `cpython-311-x86_64-linux-gnu`.
    pub tag: String,
    /// The platform as Python names it: `linux-x86_64`.
    pub platform: String,
    /// Folders of programs beside it, where a `uv` may be: of the virtual environment that was
    /// named, and its own.
    pub programs: Vec<PathBuf>,
}

/// What `ask.py` prints.
#[derive(Deserialize)]
struct Answer {
    executable: PathBuf,
    implementation: String,
    version: (u8, u8),
    tag: String,
    platform: String,
    prefixes: Vec<PathBuf>,
    stdlib: Vec<PathBuf>,
    libraries: Vec<PathBuf>,
    sites: Vec<PathBuf>,
    modules: Vec<String>,
    home: PathBuf,
}

impl Python {
    /// Finds the interpreter: `explicit`, else `SNOWMELT_PYTHON`, else `python3` on the `PATH`.
    ///
    /// Asking an interpreter takes some 50 ms (a shim 200); the answer is kept in `store` and is
    /// used again, in well under 1 ms, while the interpreter's file is the same.
    pub fn discover(explicit: Option<&Path>, store: &Path) -> Result<Self> {
        let named = locate::named(explicit)?;
        let key = cache::Key::of(&named)?;
        if let Some(known) = cache::read(store, &key) {
            return Ok(known);
        }
        let python = Self::at(&named)?;
        cache::write(store, &key, &python);
        Ok(python)
    }

    /// Asks the interpreter at a path, which may be a shim or in a virtual environment.
    pub fn at(named: &Path) -> Result<Self> {
        let first = ask(named)?;
        let executable = real(&first.executable)?;
        // A shim and a virtual environment answer for themselves; only the base interpreter says
        // what it needs when it is started by its real path, as it is inside a sandbox.
        let answer = if executable == named { first } else { ask(&executable)? };
        check(&answer, &executable)?;
        let programs = [named.parent(), executable.parent()];
        Ok(Self {
            prefixes: locate::outside_of_base(&answer, &executable),
            stdlib: answer.stdlib.iter().filter_map(|path| path.canonicalize().ok()).collect(),
            sites: answer.sites,
            stdlib_modules: answer.modules,
            tag: answer.tag,
            platform: answer.platform,
            version: answer.version,
            programs: programs.into_iter().flatten().map(Path::to_owned).collect(),
            executable,
        })
    }

    /// `3.11`.
    pub fn minor_version(&self) -> String {
        format!("{}.{}", self.version.0, self.version.1)
    }
}

fn real(path: &Path) -> Result<PathBuf> {
    let reason = |error| format!("{} cannot be found: {error}", path.display());
    path.canonicalize().map_err(|error| Error::PythonMissing { reason: reason(error) })
}

fn check(answer: &Answer, executable: &Path) -> Result<()> {
    let refuse = |why: String| {
        Err(Error::PythonMissing { reason: format!("{} {why}", executable.display()) })
    };
    let (major, minor) = answer.version;
    if answer.version < OLDEST_PYTHON {
        return refuse(format!("is version {major}.{minor}"));
    }
    if answer.implementation != "cpython" {
        return refuse(format!("is {}, not CPython", answer.implementation));
    }
    Ok(())
}

/// `-I`: neither the environment nor the current folder may add code; `-S`: nor site-packages.
fn ask(python: &Path) -> Result<Answer> {
    let mut command = Command::new(python);
    command.args(["-I", "-S", "-c", include_str!("ask.py")]).stdin(Stdio::null());
    let failed =
        |why: String| Error::PythonMissing { reason: format!("{} {why}", python.display()) };
    let output =
        run_bounded(&mut command).map_err(|error| failed(format!("does not run: {error}")))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().last().unwrap_or("it said nothing").to_owned();
        return Err(failed(format!("does not run: {last}")));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|_| failed("is not a Python interpreter".to_owned()))
}

/// Waits at most 30 s; the answer is smaller than a pipe holds, so reading it may come last.
fn run_bounded(command: &mut Command) -> std::io::Result<std::process::Output> {
    const LIMIT: Duration = Duration::from_secs(30);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let start = Instant::now();
    while child.try_wait()?.is_none() {
        if start.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn script(folder: &Path, text: &str) -> PathBuf {
        let path = folder.join("python3");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn finds_the_interpreter_behind_a_shim_and_a_virtual_environment() {
        let folder = tempfile::tempdir().unwrap();
        let base = Python::discover(None, folder.path()).unwrap();
        assert!(base.version >= OLDEST_PYTHON && base.stdlib_modules.iter().any(|m| m == "json"));
        assert_eq!(base.executable, base.executable.canonicalize().unwrap());
        let named =
            |site: &PathBuf| site.ends_with("site-packages") || site.ends_with("dist-packages");
        assert!(!base.sites.is_empty() && base.sites.iter().all(named), "{:?}", base.sites);
        let shim = script(folder.path(), &format!("exec {} \"$@\"", base.executable.display()));
        assert_eq!(Python::at(&shim).unwrap().executable, base.executable);
        let venv = folder.path().join("venv");
        let made = Command::new(&base.executable)
            .args(["-m", "venv", "--copies", "--without-pip"])
            .arg(&venv)
            .status();
        assert!(made.unwrap().success());
        let found = Python::at(&venv.join("bin/python")).unwrap();
        assert_eq!(found.executable, base.executable);
        assert_eq!(found.prefixes, base.prefixes);
        assert_eq!(found.programs[0], venv.join("bin"));
    }

    #[test]
    fn the_second_time_runs_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let base = Python::discover(None, folder.path()).unwrap();
        let count = folder.path().join("count");
        let text = format!("echo >>{}; exec {} \"$@\"", count.display(), base.executable.display());
        let shim = script(folder.path(), &text);
        let first = Python::discover(Some(&shim), folder.path()).unwrap();
        let runs = std::fs::read_to_string(&count).unwrap().len();
        assert!(runs > 0);
        assert_eq!(Python::discover(Some(&shim), folder.path()).unwrap(), first);
        assert_eq!(std::fs::read_to_string(&count).unwrap().len(), runs);
    }

    #[test]
    fn says_why_a_program_is_no_python() {
        let folder = tempfile::tempdir().unwrap();
        let missing = Python::at(&folder.path().join("none")).unwrap_err().to_string();
        assert!(missing.contains("none does not run"), "{missing}");
        let failing = script(folder.path(), "echo broken >&2; exit 1");
        assert!(Python::at(&failing).unwrap_err().to_string().contains("does not run: broken"));
        let other = script(folder.path(), "echo hello");
        assert!(
            Python::at(&other).unwrap_err().to_string().contains("is not a Python interpreter")
        );
    }
}
