//! Reads declarations from Python source without running it: required packages and imported
//! modules.
//!
//! The platform's own interpreter parses the text (`ast`) in a process with hard limits. The text
//! is not executed: code runs in sandboxes only.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde::Deserialize;

use crate::error::refused;
use crate::script_block;
use crate::{Error, Result};

/// The module of the runtime that executes a function's own code and runs its shared set-ups
/// (`@sm.setup(shared=True)`) where it is imported: in a zygote of that code alone.
pub const SHARED_SETUP: &str = "snowmelt._runtime.shared_setup";

/// The declarations of a source file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Requirements from `@sm.udf(packages=[…], python="…")`, `@sm.table(…)`, `@sm.aggregate(…)`,
    /// `@sm.function(…)` and a `# /// script` block (PEP 723), in order of appearance, without
    /// duplicates. A version of Python is one of the requirements: `python==3.13`.
    pub packages: Vec<String>,
    /// Requirements of the whole file, from the `# /// script` block.
    pub shared: Vec<String>,
    /// Requirements of each decorated function that has some, unchanged.
    pub groups: Vec<Vec<String>>,
    /// Modules by their dotted names, in the order of imports, without duplicates; without relative
    /// imports, `snowmelt`, and imports for type checkers only; with [`SHARED_SETUP`] if the file
    /// has a shared set-up.
    pub imports: Vec<String>,
}

/// The output of `inspect.py`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Refused { error: String, line: u32, within: Option<String> },
    Read { groups: Vec<Vec<String>>, imports: Vec<String>, shares: bool },
}

/// Parses a source file with an interpreter. Blocks for some 20 ms.
pub fn inspect_source(python: &Path, file: &str, text: &str) -> Result<Source> {
    let output = run(python, text).map_err(|error| broken(error.to_string()))?;
    let answer = serde_json::from_slice(&output.stdout).map_err(|_| broken(last_line(&output)))?;
    match answer {
        Answer::Refused { error, line, within } => Err(refused(file, text, error, line, within)),
        Answer::Read { groups, imports, shares } => {
            let shared = script_block::requirements(file, text)?;
            Ok(Source {
                packages: unique(groups.iter().flatten().chain(&shared).cloned()),
                shared,
                groups,
                imports: unique(
                    imports
                        .into_iter()
                        .filter(|name| is_foreign(name))
                        .chain(shares.then(|| SHARED_SETUP.to_owned())),
                ),
            })
        }
    }
}

/// Returns the modules that can be imported: from the standard library or from a folder of
/// packages. A zygote should import exactly these (SOCK 4.2).
pub fn available(imports: &[String], standard: &[String], site: &Path) -> Vec<String> {
    let exists = |name: &&String| {
        if *name == SHARED_SETUP {
            return true;
        }
        let top = name.split('.').next().unwrap_or(name);
        standard.iter().any(|module| module == top) || is_in(site, top)
    };
    imports.iter().filter(exists).cloned().collect()
}

fn is_in(site: &Path, top: &str) -> bool {
    if site.join(top).is_dir() || site.join(format!("{top}.py")).is_file() {
        return true;
    }
    let compiled = |name: &str| name.starts_with(&format!("{top}.")) && name.ends_with(".so");
    let mut entries = std::fs::read_dir(site).into_iter().flatten().flatten();
    entries.any(|entry| entry.file_name().to_str().is_some_and(compiled))
}

fn run(python: &Path, text: &str) -> std::io::Result<Output> {
    let mut child = Command::new(python)
        .args(["-I", "-S", "-c", include_str!("inspect.py")])
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // An interpreter that fails before it reads reports the reason on stderr.
        let _ = stdin.write_all(text.as_bytes());
    }
    child.wait_with_output()
}

fn broken(reason: String) -> Error {
    Error::Interpreter { reason }
}

fn last_line(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    stderr.lines().last().map_or_else(|| output.status.to_string(), str::to_owned)
}

fn is_foreign(module: &str) -> bool {
    let top = module.split('.').next().unwrap_or(module);
    !matches!(top, "snowmelt" | "__future__" | "__main__")
}

fn unique(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}
