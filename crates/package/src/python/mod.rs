//! The Python interpreter of functions, and the parts of the host that it needs in a sandbox.
//!
//! | member | job |
//! |---|---|
//! | here, `ask.py` | an interpreter, described by itself |
//! | `location` | its program, and the folders of the host that it needs |
//! | `cache` | descriptions of interpreters that have not changed |
//! | `versions` | the versions of Python that some code asks for |
//! | `choice` | an interpreter of another version than the platform's |
//! | `uv`, `process` | the resolver, run as a tool with a time limit |
//! | `bundle` | the programs that came with the platform |
//! | `runtime` | the platform's own Python files |
//!
//! Invariant: [`Python::executable`] is a regular file, not a link, shim or virtual environment. It
//! runs in a sandbox that shows [`Python::prefixes`] at the same paths in addition to the base.

pub(crate) mod bundle;
mod cache;
mod choice;
mod location;
pub(crate) mod process;
mod runtime;
pub(crate) mod uv;
mod versions;

pub(crate) use location::{is_program, on_path};
pub use runtime::{Runtime, runtime_files};
pub use uv::Uv;
pub use versions::{WantedPython, python_requirement};

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The oldest `major.minor` of Python that the runtime supports.
pub const OLDEST_PYTHON: (u8, u8) = (3, 10);

/// A Python interpreter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Python {
    /// The real path of the interpreter.
    pub executable: PathBuf,
    /// Major and minor version.
    pub version: (u8, u8),
    /// The release of the interpreter within that version.
    pub patch: u8,
    /// Folders outside of `/usr`, `/lib*` and `/bin` that the interpreter needs at the same paths.
    pub prefixes: Vec<PathBuf>,
    /// Folders of the standard library.
    pub stdlib: Vec<PathBuf>,
    /// Folders of the host's packages for the interpreter, which must not be visible in a sandbox.
    pub sites: Vec<PathBuf>,
    /// Names of the modules of the standard library.
    pub stdlib_modules: Vec<String>,
    /// The ABI tag of compiled modules: `cpython-311-x86_64-linux-gnu`.
    pub tag: String,
    /// The platform in Python's spelling: `linux-x86_64`.
    pub platform: String,
    /// Folders of programs in which `uv` may be: those of the given virtual environment and of the
    /// interpreter.
    pub programs: Vec<PathBuf>,
}

/// The facts about an interpreter: the output of `ask.py`.
#[derive(Deserialize)]
struct InterpreterFacts {
    executable: PathBuf,
    implementation: String,
    version: (u8, u8, u8),
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
    /// Finds the interpreter: `explicit`, else `SNOWMELT_PYTHON`, else that of the virtual
    /// environment in which this program is installed, else `python3` on the `PATH`.
    ///
    /// Running an interpreter takes about 50 ms (a shim 200 ms). The result is cached in `store`
    /// and reused in less than 1 ms while the interpreter's file does not change.
    pub fn discover(explicit: Option<&Path>, store: &Path) -> Result<Self> {
        let named = location::named(explicit)?;
        let key = cache::PythonKey::of(&named)?;
        if let Some(known) = cache::read(store, &key) {
            return Ok(known);
        }
        let python = Self::at(&named)?;
        cache::write(store, &key, &python);
        Ok(python)
    }

    /// Inspects the interpreter at a path, which may be a shim or in a virtual environment.
    pub fn at(named: &Path) -> Result<Self> {
        let first = inspect(named)?;
        let executable = real(&first.executable)?;
        // A shim and a virtual environment describe themselves. Only the base interpreter describes
        // what it needs when it is started by its real path, as in a sandbox.
        let answer = if executable == named { first } else { inspect(&executable)? };
        check(&answer, &executable)?;
        let programs = [named.parent(), executable.parent()];
        let version = minor(&answer);
        Ok(Self {
            prefixes: location::outside_of_base(&answer, &executable),
            stdlib: answer.stdlib.iter().filter_map(|path| path.canonicalize().ok()).collect(),
            sites: answer.sites,
            stdlib_modules: answer.modules,
            tag: answer.tag,
            platform: answer.platform,
            version,
            patch: answer.version.2,
            programs: programs.into_iter().flatten().map(Path::to_owned).collect(),
            executable,
        })
    }

    /// The version as text: `3.11`.
    pub fn minor_version(&self) -> String {
        format!("{}.{}", self.version.0, self.version.1)
    }
}

fn real(path: &Path) -> Result<PathBuf> {
    let reason = |error| format!("{} cannot be found: {error}", path.display());
    path.canonicalize().map_err(|error| Error::PythonMissing { reason: reason(error) })
}

fn check(answer: &InterpreterFacts, executable: &Path) -> Result<()> {
    let refuse = |why: String| {
        Err(Error::PythonMissing { reason: format!("{} {why}", executable.display()) })
    };
    let version = minor(answer);
    if version < OLDEST_PYTHON {
        return refuse(format!("is version {}.{}", version.0, version.1));
    }
    if answer.implementation != "cpython" {
        return refuse(format!("is {}, not CPython", answer.implementation));
    }
    Ok(())
}

fn minor(answer: &InterpreterFacts) -> (u8, u8) {
    (answer.version.0, answer.version.1)
}

/// Asks an interpreter for its description. `-I` excludes code from the environment and the current
/// folder, `-S` from site-packages.
fn inspect(python: &Path) -> Result<InterpreterFacts> {
    let mut command = Command::new(python);
    command.args(["-I", "-S", "-c", include_str!("ask.py")]).stdin(Stdio::null());
    let failed =
        |why: String| Error::PythonMissing { reason: format!("{} {why}", python.display()) };
    let output =
        run_bounded(&mut command).map_err(|error| failed(format!("does not run: {error}")))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().last().unwrap_or("no error message").to_owned();
        return Err(failed(format!("does not run: {last}")));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|_| failed("is not a Python interpreter".to_owned()))
}

/// Runs a command for at most 30 s. The output is smaller than a pipe's buffer, so it can be read
/// at the end.
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
    fn the_second_discovery_uses_the_cache() {
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
    fn reports_why_a_program_is_not_a_python() {
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
