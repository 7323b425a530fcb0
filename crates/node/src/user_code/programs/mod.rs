//! Programs that run a function's files: the program that the user names becomes a command in a
//! root.
//!
//! The platform includes runtimes for Node.js and Java, and a package for Go; any other program
//! that implements the protocol of `docs/reference/runtimes.md` is a command. Invariant: missing
//! parts of a program are reported by name before anything is started.

mod command;
mod process;
mod runtimes;
mod search;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use snowmelt_image::RunConfig;

use crate::images::Mounted;
use crate::{InstanceLimits, Program, Result};
use search::Inside;

/// The program that is to run a function's files, as the user names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramRequest {
    /// The runtime that runs the files.
    pub language: Language,
    /// The program and its arguments, for [`Language::Command`] only; empty for the command of the
    /// image.
    pub command: Vec<String>,
    /// The unpacked file system of an image on this machine; `None` for the host's base.
    pub root: Option<PathBuf>,
    /// The name of a block image to run in, instead of a root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The name of the function or class that is called in the files.
    pub handler: String,
}

impl ProgramRequest {
    /// Requests Python code to be run by the interpreter of an image.
    pub fn python_in(image: String) -> Self {
        Self {
            language: Language::Python,
            command: Vec::new(),
            root: None,
            image: Some(image),
            handler: String::new(),
        }
    }
}

/// The runtime of a function that is not forked from a zygote of the platform's Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Language {
    /// Python code by the interpreter of an image, with the runtime of the platform.
    Python,
    /// `handler.mjs` by the runtime of the platform.
    Node,
    /// A class by the runtime of the platform.
    Java,
    /// A program made with the Go package of the platform.
    Go,
    /// A program of the user's own.
    Command,
}

impl Language {
    /// Returns the name that is called where the user names nothing: for a single Java file its
    /// class, which has the name of the file.
    pub fn default_handler<'a>(self, files: impl Iterator<Item = &'a str>) -> String {
        let files: Vec<&str> = files.collect();
        let only = files.first().filter(|_| files.len() == 1);
        match (self, only.and_then(|file| file.strip_suffix(".java"))) {
            (Self::Java, Some(class)) => class.to_owned(),
            (Self::Java, None) => "Handler".to_owned(),
            _ => "handler".to_owned(),
        }
    }
}

/// The runtimes of the platform for other languages.
pub(crate) struct Runtimes {
    /// The folder of the runtimes that are unpacked or compiled when they are needed.
    pub folder: PathBuf,
    /// The folder of the runtime for Python, for [`Language::Python`]; otherwise `None`.
    pub python: Option<PathBuf>,
}

/// A mounted image and its configuration.
pub(crate) type InImage = (Mounted, RunConfig);

/// Finds all that a program needs to run, and returns how it is started; blocks.
pub(crate) fn prepare(
    runtimes: &Runtimes,
    code: &Path,
    request: &ProgramRequest,
    image: Option<InImage>,
    limits: &InstanceLimits,
) -> Result<Program> {
    let inside = match (image, &request.image) {
        (Some(image), Some(name)) => Inside::of_image(name, image, code, limits)?,
        _ => Inside::open(request.root.as_deref(), code, limits)?,
    };
    let python = runtimes.python.as_deref();
    let runtimes = &runtimes.folder;
    let parts = match request.language {
        Language::Python => command::python(&inside, python)?,
        Language::Node => command::node(&inside, runtimes, limits)?,
        Language::Java => command::java(&inside, runtimes, limits, &request.handler)?,
        Language::Go => command::go(&inside, limits)?,
        Language::Command if request.command.is_empty() => command::of_image(&inside)?,
        Language::Command => command::own(&inside, &request.command)?,
    };
    Ok(parts.program(inside, limits))
}
