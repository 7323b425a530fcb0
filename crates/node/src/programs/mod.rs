//! Programs that run a function's files: what the user names becomes a command in a root.
//!
//! The platform includes runtimes for Node.js and Java, and a package for Go; any other program
//! that implements the protocol of `docs/reference/runtimes.md` is a command. Invariant: missing
//! parts of a program are reported by name before anything is started.

mod command;
mod find;
mod process;
mod shipped;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use snowmelt_image::RunConfig;

use crate::images::Mounted;
use crate::{InstanceLimits, Program, Result};
use find::Inside;

/// What runs a function's files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramRequest {
    /// The runtime.
    pub language: Language,
    /// Program and arguments, for [`Language::Command`] only; empty: those of the image.
    pub command: Vec<String>,
    /// The unpacked file system of an image on this machine; absent: the host's base.
    pub root: Option<PathBuf>,
    /// A block image by its name, instead of a root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// What is called in the files.
    pub handler: String,
}

impl ProgramRequest {
    /// Python code by the interpreter of an image.
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

/// What runs a function that is not forked from a zygote of the platform's Python.
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
    /// What is called where the user names nothing: the class of a single Java file is its name.
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

/// The runtimes of the platform.
pub(crate) struct Runtimes {
    /// Those that are unpacked or compiled when they are needed.
    pub folder: PathBuf,
    /// That of Python, for [`Language::Python`].
    pub python: Option<PathBuf>,
}

/// A mounted image and its configuration.
pub(crate) type InImage = (Mounted, RunConfig);

/// Finds everything that a program needs; blocks.
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
