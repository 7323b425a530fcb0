//! Programs that run a function's files: what the user names becomes a command in a root.
//!
//! The platform brings runtimes for Node.js and Java, and a package for Go; any other program that
//! speaks the dialogue of `docs/runtimes.md` is a command. Invariant: what a program lacks is told
//! by name before anything is started.

mod command;
mod find;
mod shipped;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::images::Mounted;
use crate::{InstanceLimits, Program, Result};
use find::Inside;

/// What runs a function's files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramRequest {
    /// The runtime.
    pub language: Language,
    /// Program and arguments, for [`Language::Command`] only.
    pub command: Vec<String>,
    /// The unpacked file system of an image on this machine; absent: the host's base.
    pub root: Option<PathBuf>,
    /// A block image by its name, instead of a root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// What is called in the files.
    pub handler: String,
}

/// Runtimes beside Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Language {
    /// `handler.mjs` by the runtime that the platform brings.
    Node,
    /// A class by the runtime that the platform brings.
    Java,
    /// A program made with the Go package that the platform brings.
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

/// Finds everything that a program needs; blocks.
pub(crate) fn prepare(
    runtimes: &Path,
    code: &Path,
    request: &ProgramRequest,
    mounted: Option<Mounted>,
    limits: &InstanceLimits,
) -> Result<Program> {
    let inside = match (mounted, &request.image) {
        (Some(mounted), Some(image)) => Inside::of_image(image, mounted, code, limits),
        _ => Inside::open(request.root.as_deref(), code, limits)?,
    };
    let parts = match request.language {
        Language::Node => command::node(&inside, runtimes, limits)?,
        Language::Java => command::java(&inside, runtimes, limits, &request.handler)?,
        Language::Go => command::go(&inside, limits)?,
        Language::Command => command::own(&inside, &request.command)?,
    };
    Ok(parts.program(inside, limits))
}
