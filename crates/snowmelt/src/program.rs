//! The code of a deployment: its runtime, and the files of a program.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use snowmelt_api::Runtime;
use snowmelt_image::source::ImageLocation;
use snowmelt_types::{ByteSize, Code, ErrorReport, Report};
use snowmelt_wire::{CodeFile, SourceCode};

use crate::args::DeployArgs;
use crate::text;

/// Size limit of all files together: encoded in base64 they fit into one request.
const MAX_BYTES: ByteSize = ByteSize::mib(180);

/// The runtime that the user names, or that of the file's extension. In an image, a folder or no
/// code at all means the image's own command.
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
        _ if path.is_dir() => Err(unknown(path, "a folder")),
        Some("py") => Ok(Runtime::Python),
        _ if is_program(path) => Err(unknown(path, "a program")),
        _ => Ok(Runtime::Python),
    }
}

fn unknown(path: &Path, what: &str) -> ErrorReport {
    let message = format!("{} is {what}: its runtime is unknown", path.display());
    ErrorReport::new(Code::OPTION, message)
        .hint("choose one with --runtime node|java|go, or use --command")
}

fn is_program(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read = std::fs::File::open(path)
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut magic));
    read.is_ok() && magic == *b"\x7fELF"
}

/// Program and arguments from one text, split as a shell does.
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

/// One file, or all files of a folder.
///
/// # Errors
/// `SM-0110` with the path that cannot be read or sent.
pub fn files(path: &Path) -> Result<SourceCode, ErrorReport> {
    let mut found = CollectedFiles::default();
    if path.is_dir() {
        found.folder(path, "")?;
    } else {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        found.file(path, name)?;
    }
    if found.files.is_empty() {
        return Err(ErrorReport::new(Code::OPTION, format!("{} is empty", path.display())));
    }
    Ok(SourceCode::Files { files: found.files })
}

#[derive(Default)]
struct CollectedFiles {
    files: BTreeMap<String, CodeFile>,
    bytes: u64,
}

impl CollectedFiles {
    fn folder(&mut self, folder: &Path, prefix: &str) -> Result<(), ErrorReport> {
        let entries = std::fs::read_dir(folder).map_err(|error| unreadable(folder, &error))?;
        for entry in entries {
            let path = entry.map_err(|error| unreadable(folder, &error))?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                return Err(refused(&path, "its name is not UTF-8"));
            };
            let name = format!("{prefix}{name}");
            match (path.is_dir(), path.is_symlink()) {
                // The link may point to a parent folder, which would be a loop.
                (true, true) => return Err(refused(&path, "it is a symbolic link to a folder")),
                (true, false) => self.folder(&path, &format!("{name}/"))?,
                (false, _) => self.file(&path, name)?,
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, name: String) -> Result<(), ErrorReport> {
        let found = path.metadata().map_err(|error| unreadable(path, &error))?;
        if !found.is_file() {
            return Err(refused(path, "it is neither a file nor a folder"));
        }
        self.bytes += found.len();
        if self.bytes > MAX_BYTES.bytes() {
            let message = format!("the files are larger than {MAX_BYTES} together");
            return Err(ErrorReport::new(Code::OPTION, message)
                .hint("put large files into an image, and name it with --image"));
        }
        let bytes = std::fs::read(path).map_err(|error| unreadable(path, &error))?;
        let executable = found.permissions().mode() & 0o111 != 0;
        self.files.insert(name, CodeFile::new(&bytes, executable));
        Ok(())
    }
}

fn refused(path: &Path, reason: &str) -> ErrorReport {
    ErrorReport::new(Code::OPTION, format!("{} cannot be sent: {reason}", path.display()))
}

fn unreadable(path: &Path, error: &std::io::Error) -> ErrorReport {
    let reason = text::reason(error);
    ErrorReport::new(Code::OPTION, format!("{} cannot be read: {reason}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_folder_includes_all_files_and_refuses_links_to_folders() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("lib/deep")).unwrap();
        std::fs::write(folder.path().join("main"), "#!").unwrap();
        std::fs::set_permissions(
            folder.path().join("main"),
            std::fs::Permissions::from_mode(0o755),
        )
        .unwrap();
        symlink("../../main", folder.path().join("lib/deep/linked")).unwrap();
        let SourceCode::Files { files } = super::files(folder.path()).unwrap() else { panic!() };
        let names: Vec<_> = files.iter().map(|(name, file)| (&**name, file.executable)).collect();
        assert_eq!(names, [("lib/deep/linked", true), ("main", true)]);
        symlink("..", folder.path().join("lib/up")).unwrap();
        let refused = super::files(folder.path()).unwrap_err();
        assert!(refused.message.contains("lib/up cannot be sent"), "{refused}");
    }
}
