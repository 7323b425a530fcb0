//! The program of a deployment: its runtime, its command, and the place of its image.

use std::path::{Path, PathBuf};

use snowmelt_api::Runtime;
use snowmelt_image::source::ImageLocation;
use snowmelt_types::{Code, ErrorReport, Report};

use super::files::unreadable;
use super::python;
use crate::args::DeployArgs;

/// Returns the runtime that the user names, or that of the file's extension. In an image, a folder
/// or no code at all means the image's own command.
///
/// # Errors
/// `SM-0110` if neither determines it.
pub fn runtime(args: &DeployArgs, path: &Path) -> Result<Runtime, ErrorReport> {
    if args.command.is_some() {
        return Ok(Runtime::Command);
    }
    if let Some(runtime) = args.runtime {
        return Ok(runtime.into());
    }
    let has_image = args.image.is_some();
    match path.extension().and_then(|extension| extension.to_str()) {
        _ if has_image && (args.code.is_none() || path.is_dir()) => Ok(Runtime::Command),
        Some("mjs" | "cjs" | "js") => Ok(Runtime::Node),
        Some("java" | "jar") => Ok(Runtime::Java),
        _ if python::is_folder(path) => Ok(Runtime::Python),
        _ if path.is_dir() => Err(unknown(path, "a folder")),
        Some("py") => Ok(Runtime::Python),
        _ if is_program(path) => Err(unknown(path, "a program")),
        _ => Ok(Runtime::Python),
    }
}

fn unknown(path: &Path, what: &str) -> ErrorReport {
    let message = format!("{} is {what}: its runtime is unknown", path.display());
    ErrorReport::new(Code::OPTION, message).hint(
        "choose one with --runtime node|java|go, or use --command; a folder of Python has \
             app.py or handler.py, or its module is named: FOLDER:MODULE:FUNCTION",
    )
}

fn is_program(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read = std::fs::File::open(path)
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut magic));
    read.is_ok() && magic == *b"\x7fELF"
}

/// Splits one text into program and arguments, as a shell does.
///
/// # Errors
/// `SM-0110` for an unterminated quotation.
pub fn command(args: &DeployArgs) -> Result<Vec<String>, ErrorReport> {
    let Some(text) = &args.command else { return Ok(Vec::new()) };
    let words = shlex::split(text).filter(|words| !words.is_empty());
    words.ok_or_else(|| {
        ErrorReport::new(Code::OPTION, format!("`{text}` is not a command"))
            .hint("write for example --command './serve --fast'")
    })
}

/// The absolute path of an image's folder, as the platform needs it.
///
/// # Errors
/// `SM-0110` if it is not a folder.
pub fn root(args: &DeployArgs) -> Result<Option<PathBuf>, ErrorReport> {
    let Some(root) = &args.root else { return Ok(None) };
    let absolute = root.canonicalize().map_err(|error| unreadable(root, &error))?;
    if absolute.is_dir() {
        return Ok(Some(absolute));
    }
    let message = format!("{} is not a folder", root.display());
    Err(ErrorReport::new(Code::OPTION, message)
        .hint("unpack the image first; --root is the folder that contains bin, lib and usr"))
}

/// The name of a block image, as the platform needs it: the path of a folder is absolute.
///
/// # Errors
/// `SM-1001` for an invalid name.
pub fn image(args: &DeployArgs) -> Result<Option<String>, ErrorReport> {
    args.image.as_deref().map(place).transpose()
}

/// The name of an image or code package, as the platform needs it.
///
/// # Errors
/// `SM-1001` for an invalid name.
pub fn place(name: &str) -> Result<String, ErrorReport> {
    match name.parse::<ImageLocation>().map_err(|error| error.report())? {
        ImageLocation::Layout(folder, tag) => {
            let folder = folder.canonicalize().map_err(|error| unreadable(&folder, &error))?;
            Ok(ImageLocation::Layout(folder, tag).to_string())
        }
        _ => Ok(name.to_owned()),
    }
}
