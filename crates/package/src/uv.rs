//! Finds `uv` and calls it, always with the same precautions.
//!
//! It runs in `/` so that no configuration of a project that happens to be around applies, with a
//! cache of its own that nothing else writes to, and never builds from source: that would run a
//! package's own code on the host.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

use crate::process::{self, Answer};
use crate::python::{is_program, on_path};
use crate::{Error, Python, Result};

/// How `uv` is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uv {
    program: PathBuf,
    /// `-m uv` where it is a module of a Python.
    arguments: Vec<&'static str>,
}

/// Variables that would change what is resolved or where it is put.
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
    /// Finds it: `named`, which `SNOWMELT_UV` gives; on the `PATH`; in uv's own place
    /// `~/.local/bin`; beside the Python; as a module of the Python.
    pub fn find(named: Option<&Path>, python: &Python) -> Result<Self> {
        let program = |path: PathBuf| Self { program: path, arguments: Vec::new() };
        if let Some(named) = named {
            let there = is_program(named).then(|| program(named.to_owned()));
            return there.ok_or_else(|| missing(Some(named), python));
        }
        let home = env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/bin"));
        let folders = home.iter().chain(&python.programs).map(|folder| folder.join("uv"));
        let found =
            on_path(OsStr::new("uv")).or_else(|| folders.into_iter().find(|p| is_program(p)));
        found.map(program).or_else(|| as_module(python)).ok_or_else(|| missing(None, python))
    }

    /// The program, for messages.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// A command that says its version.
    pub fn version_command(&self) -> std::process::Command {
        let mut command = std::process::Command::new(&self.program);
        command.args(&self.arguments).arg("--version");
        command
    }

    /// Runs `uv pip …` and gives what it said, whether or not it succeeded.
    pub(crate) async fn pip(
        &self,
        cache: &Path,
        arguments: &[&OsStr],
        input: &str,
        limit: (&'static str, Duration),
    ) -> Result<Answer> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).arg("pip").args(arguments);
        command.args(["--only-binary", ":all:", "--color", "never", "--no-progress"]);
        command.args(["--no-python-downloads", "--cache-dir"]).arg(cache).current_dir("/");
        for variable in FOREIGN {
            command.env_remove(variable);
        }
        let (doing, limit) = limit;
        process::run(&mut command, input, doing, limit).await
    }
}

/// The module is looked for where the virtual environment or the interpreter keeps its packages.
fn as_module(python: &Python) -> Option<Uv> {
    let library = format!("lib/python{}/site-packages/uv/__main__.py", python.minor_version());
    let mut roots = python.programs.iter().filter_map(|folder| Some((folder, folder.parent()?)));
    let (folder, _) = roots.find(|(_, root)| root.join(&library).is_file())?;
    Some(Uv { program: folder.join("python3"), arguments: vec!["-m", "uv"] })
}

fn missing(named: Option<&Path>, python: &Python) -> Error {
    // There pip refuses to install anything, and uv's own installer needs no Python.
    let is_managed = python.stdlib.iter().any(|folder| folder.join("EXTERNALLY-MANAGED").exists());
    let mend = match is_managed {
        true => "curl -LsSf https://astral.sh/uv/install.sh | sh".to_owned(),
        false => format!("{} -m pip install uv", python.executable.display()),
    };
    Error::UvMissing { tried: named.map(Path::to_owned), mend }
}

/// The lines of uv's stderr that tell a user why it failed: no progress, no secrets, not endless.
pub(crate) fn useful_lines(stderr: &str) -> Vec<String> {
    const MOST_LINES: usize = 12;
    const LONGEST: usize = 500;
    let start = stderr.lines().position(|line| line.starts_with("error:")).unwrap_or(0);
    let lines = stderr.lines().skip(start).take_while(|line| !line.starts_with("hint:"));
    let lines = lines.map(str::trim_end).filter(|line| !line.is_empty());
    let short = |line: &str| line.chars().take(LONGEST).collect::<String>();
    lines.take(MOST_LINES).map(|line| without_secrets(&short(line))).collect()
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
    fn a_python_of_a_distribution_is_not_told_to_use_pip() {
        let folder = tempfile::tempdir().unwrap();
        let python = Python {
            sites: Vec::new(),
            executable: "/usr/bin/python3.11".into(),
            version: (3, 11),
            prefixes: Vec::new(),
            stdlib: vec![folder.path().to_owned()],
            stdlib_modules: Vec::new(),
            tag: String::new(),
            platform: String::new(),
            programs: Vec::new(),
        };
        let mend = || match missing(None, &python) {
            Error::UvMissing { mend, .. } => mend,
            other => panic!("{other}"),
        };
        assert_eq!(mend(), "/usr/bin/python3.11 -m pip install uv");
        std::fs::write(folder.path().join("EXTERNALLY-MANAGED"), "").unwrap();
        assert!(mend().contains("uv/install.sh"));
    }

    #[test]
    fn shows_why_and_no_password() {
        let stderr = "Using CPython 3.11\nResolved 1 package\nerror: No solution\n  cause: at \
                      https://ada:secret@index.test/simple\n\nhint: internal";
        let expected = ["error: No solution", "  cause: at https://***@index.test/simple"];
        assert_eq!(useful_lines(stderr), expected);
    }
}
