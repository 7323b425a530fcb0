//! Finds and runs `uv`, always with the same precautions.
//!
//! It runs in `/`, so that no configuration of a project in the current folder applies; with a
//! cache of its own, to which nothing else writes; and it never builds from source, which would run
//! a package's code on the host.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use snowmelt_kernel::process::end_with_thread;
use tokio::process::Command;

use super::process::{self, ToolOutput};
use super::{bundle, is_program, on_path};
use crate::{Error, Python, Result};

/// The program `uv`, and the way to start it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uv {
    program: PathBuf,
    /// `-m uv` if it is a module of a Python.
    arguments: Vec<&'static str>,
}

/// Environment variables that would change the resolved versions or the target folder.
const FOREIGN: [&str; 9] = [
    "CONDA_PREFIX",
    "PYTHONHOME",
    "PYTHONPATH",
    "UV_NO_BINARY",
    "UV_PREFIX",
    "UV_PYTHON",
    "UV_SYSTEM_PYTHON",
    "UV_TARGET",
    "VIRTUAL_ENV",
];

impl Uv {
    /// Finds `uv`: `named`, the value of `SNOWMELT_UV`; what came with this program; on the `PATH`;
    /// in `~/.local/bin`, where uv's installer puts it; beside the Python; as a module of the
    /// Python.
    pub fn find(named: Option<&Path>, python: &Python) -> Result<Self> {
        let program = |path: PathBuf| Self { program: path, arguments: Vec::new() };
        if let Some(named) = named {
            let found = is_program(named).then(|| program(named.to_owned()));
            return found.ok_or_else(|| missing(Some(named), python));
        }
        let own = bundle::folder().map(|folder| bundle::uv_places(&folder)).unwrap_or_default();
        let home = bundle::home().map(|home| home.join(".local/bin"));
        let mut folders = home.iter().chain(&python.programs).map(|folder| folder.join("uv"));
        let found = own.into_iter().find(|path| is_program(path));
        let found = found.or_else(|| on_path(OsStr::new("uv")));
        let found = found.or_else(|| folders.find(|path| is_program(path)));
        found.map(program).or_else(|| as_module(python)).ok_or_else(|| missing(None, python))
    }

    /// The program, for messages.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// A command that prints its version.
    pub fn version_command(&self) -> std::process::Command {
        let mut command = std::process::Command::new(&self.program);
        command.args(&self.arguments).arg("--version");
        command
    }

    /// Runs `uv pip …` and returns its output, whether or not it succeeds.
    pub(crate) async fn pip(
        &self,
        cache: &Path,
        arguments: &[&OsStr],
        input: &str,
        limit: (&'static str, Duration),
    ) -> Result<ToolOutput> {
        let mut command = self.command();
        command.arg("pip").args(arguments);
        command.args(["--only-binary", ":all:", "--color", "never", "--no-progress"]);
        command.args(["--no-python-downloads", "--cache-dir"]).arg(cache);
        let (action, limit) = limit;
        process::run(&mut command, input, action, limit).await
    }

    /// Fetches the newest release of a minor version of Python into a folder, and returns the
    /// output, whether or not it succeeds.
    pub(crate) async fn fetch_python(
        &self,
        version: &str,
        folder: &Path,
        limit: Duration,
    ) -> Result<ToolOutput> {
        let mut command = self.command();
        command.args(["python", "install", "--color", "never", "--no-progress", version]);
        // Links in a user's folder of programs are for users.
        command.env("UV_PYTHON_INSTALL_DIR", folder).env("UV_PYTHON_INSTALL_BIN", "0");
        process::run(&mut command, "", "fetching Python", limit).await
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir("/");
        for variable in FOREIGN {
            command.env_remove(variable);
        }
        // It would go on to fetch for a process that was killed.
        end_with_thread(command.as_std_mut());
        command
    }
}

/// The value of `SNOWMELT_UV`.
pub(crate) fn named() -> Option<PathBuf> {
    std::env::var_os("SNOWMELT_UV").filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Searches the module in the packages of the virtual environment and of the interpreter.
fn as_module(python: &Python) -> Option<Uv> {
    let library = format!("lib/python{}/site-packages/uv/__main__.py", python.minor_version());
    let mut roots = python.programs.iter().filter_map(|folder| Some((folder, folder.parent()?)));
    let (folder, _) = roots.find(|(_, root)| root.join(&library).is_file())?;
    Some(Uv { program: folder.join("python3"), arguments: vec!["-m", "uv"] })
}

fn missing(named: Option<&Path>, python: &Python) -> Error {
    // In a managed environment pip refuses to install packages. A folder of one user's would not do
    // for a service.
    let is_managed = python.stdlib.iter().any(|folder| folder.join("EXTERNALLY-MANAGED").exists());
    let hint = match is_managed {
        true => "copy the program `uv` (https://docs.astral.sh/uv) to /usr/local/bin, where a \
                 service finds it too, or name it with SNOWMELT_UV"
            .to_owned(),
        false => format!("{} -m pip install uv", python.executable.display()),
    };
    Error::UvMissing { tried: named.map(Path::to_owned), hint }
}

/// The lines of uv's stderr that explain a failure: limited, without progress and secrets.
pub(crate) fn useful_lines(stderr: &str) -> Vec<String> {
    const MAX_LINES: usize = 12;
    const MAX_LENGTH: usize = 500;
    let start = stderr.lines().position(|line| line.starts_with("error:")).unwrap_or(0);
    let lines = stderr.lines().skip(start).take_while(|line| !line.starts_with("hint:"));
    let lines = lines.map(str::trim_end).filter(|line| !line.is_empty());
    let short = |line: &str| line.chars().take(MAX_LENGTH).collect::<String>();
    lines.take(MAX_LINES).map(|line| without_secrets(&short(line))).collect()
}

/// `https://user:secret@host` becomes `https://***@host`.
fn without_secrets(line: &str) -> String {
    let words = line.split(' ').map(|word| {
        let (scheme, rest) = word.split_once("://")?;
        let (_, host) = rest.split_once('@')?;
        Some(format!("{scheme}://***@{host}"))
    });
    words
        .zip(line.split(' '))
        .map(|(cleaned, word)| cleaned.unwrap_or_else(|| word.to_owned()))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn does_not_recommend_pip_for_a_managed_python() {
        let folder = tempfile::tempdir().unwrap();
        let python = Python {
            sites: Vec::new(),
            executable: "/usr/bin/python3.11".into(),
            version: (3, 11),
            patch: 2,
            prefixes: Vec::new(),
            stdlib: vec![folder.path().to_owned()],
            stdlib_modules: Vec::new(),
            tag: String::new(),
            platform: String::new(),
            programs: Vec::new(),
        };
        let command = || match missing(None, &python) {
            Error::UvMissing { hint, .. } => hint,
            other => panic!("{other}"),
        };
        assert_eq!(command(), "/usr/bin/python3.11 -m pip install uv");
        std::fs::write(folder.path().join("EXTERNALLY-MANAGED"), "").unwrap();
        assert!(command().contains("/usr/local/bin"));
    }

    #[test]
    fn shows_the_cause_without_passwords() {
        let stderr = "Using CPython 3.11\nResolved 1 package\nerror: No solution\n  cause: at \
                      https://ada:secret@index.test/simple\n\nhint: internal";
        let expected = ["error: No solution", "  cause: at https://***@index.test/simple"];
        assert_eq!(useful_lines(stderr), expected);
    }
}
